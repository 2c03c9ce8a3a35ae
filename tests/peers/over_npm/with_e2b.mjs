// E2B's npm packages `e2b` and `@e2b/code-interpreter`, unchanged.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import * as e2b from 'e2b'
import { Sandbox } from '@e2b/code-interpreter'

const sandboxes = []
let sandbox

async function create(options = {}) {
  const made = await Sandbox.create(options)
  sandboxes.push(made)
  return made
}

before(async () => {
  sandbox = await create({ metadata: { purpose: 'npm' }, envs: { COLOUR: 'blue' } })
})

after(async () => {
  await Promise.all(sandboxes.map((each) => each.kill()))
})

test('a cell has its value, and later cells its names', async () => {
  await sandbox.runCode('x = 40')
  assert.equal((await sandbox.runCode('x + 2')).text, '42')
})

test('output is streamed while the cell runs', async () => {
  const stdout = [], stderr = [], results = []
  const execution = await sandbox.runCode("import sys\nprint('out'); print('err', file=sys.stderr)\n[1, 2]", {
    onStdout: (message) => stdout.push(message.line),
    onStderr: (message) => stderr.push(message.line),
    onResult: (result) => results.push(result.text),
  })
  assert.deepEqual([stdout.join(''), stderr.join(''), results], ['out\n', 'err\n', ['[1, 2]']])
  assert.equal(execution.logs.stdout.join(''), 'out\n')
  assert.ok(execution.executionCount > 0)
})

test('an error has its name, its message and a traceback', async () => {
  const told = []
  const { error } = await sandbox.runCode('1 / 0', { onError: (each) => told.push(each.name) })
  assert.equal(error.name, 'ZeroDivisionError')
  assert.match(error.traceback, /1 \/ 0/)
  assert.deepEqual(told, ['ZeroDivisionError'])
})

test('results have their MIME types', async () => {
  const code = `
class Shown:
    def _repr_html_(self): return '<b>html</b>'
    def _repr_markdown_(self): return '**markdown**'
    def _repr_svg_(self): return '<svg/>'
    def _repr_latex_(self): return '$x$'
    def _repr_json_(self): return {'a': 1}
    def _repr_png_(self): return b'png'
Shown()`
  const [result] = (await sandbox.runCode(code)).results
  assert.deepEqual(
    [result.html, result.markdown, result.svg, result.latex, result.json, result.png],
    ['<b>html</b>', '**markdown**', '<svg/>', '$x$', { a: 1 }, Buffer.from('png').toString('base64')]
  )
  assert.ok(result.isMainResult)
})

test('a frame comes with its data', async () => {
  const [result] = (await sandbox.runCode("import pandas as pd\npd.DataFrame({'a': [1, 2]})")).results
  assert.match(result.html, /<table/)
  assert.deepEqual(result.data, { a: [1, 2] })
})

test('contexts have names of their own', async () => {
  const context = await sandbox.createCodeContext({ cwd: '/tmp' })
  await sandbox.runCode('only_here = 1', { context })
  assert.equal((await sandbox.runCode("'only_here' in globals()")).text, 'False')
  assert.match((await sandbox.runCode('import os; os.getcwd()', { context })).text, /tmp/)
  assert.ok((await sandbox.listCodeContexts()).some((each) => each.id === context.id))
  await sandbox.restartCodeContext(context.id)
  assert.equal((await sandbox.runCode("'only_here' in globals()", { context })).text, 'False')
  await sandbox.removeCodeContext(context.id)
  assert.ok(!(await sandbox.listCodeContexts()).some((each) => each.id === context.id))
})

test('a cell ends at its timeout, and the state stays', async () => {
  await assert.rejects(sandbox.runCode('import time; time.sleep(60)', { timeoutMs: 1000 }), e2b.TimeoutError)
  assert.equal((await sandbox.runCode('x')).text, '40')
})

test('bash runs beside the namespace, other languages are refused', async () => {
  assert.equal((await sandbox.runCode('echo $COLOUR', { language: 'bash' })).logs.stdout.join(''), 'blue\n')
  await assert.rejects(sandbox.runCode('1', { language: 'r' }))
})

test('environment variables of a sandbox and of a cell', async () => {
  const code = "import os; (os.environ['COLOUR'], os.environ.get('SHAPE'))"
  assert.equal((await sandbox.runCode(code, { envs: { SHAPE: 'round' } })).text, "('blue', 'round')")
  assert.equal((await sandbox.runCode(code)).text, "('blue', None)")
})

test('files are written, read, listed, moved and removed', async () => {
  await sandbox.files.write('folder/text.txt', 'hello')
  await sandbox.files.write([
    { path: 'folder/one', data: 'a' },
    { path: 'folder/two', data: new Uint8Array([0, 255]).buffer },
  ])
  assert.equal(await sandbox.files.read('folder/text.txt'), 'hello')
  assert.deepEqual([...(await sandbox.files.read('folder/two', { format: 'bytes' }))], [0, 255])
  assert.deepEqual(
    (await sandbox.files.list('folder')).map((each) => each.name).sort(),
    ['one', 'text.txt', 'two']
  )
  assert.equal((await sandbox.files.rename('folder/one', 'folder/three')).name, 'three')
  assert.equal((await sandbox.files.getInfo('folder/three')).size, 1)
  assert.ok(await sandbox.files.exists('folder/three'))
  await sandbox.files.remove('folder/three')
  assert.ok(!(await sandbox.files.exists('folder/three')))
  assert.ok(await sandbox.files.makeDir('made'))
  assert.ok(!(await sandbox.files.makeDir('made')))
  await assert.rejects(sandbox.files.read('nothing'), e2b.NotFoundError)
})

test('a file comes as a stream', async () => {
  await sandbox.files.write('large', 'x'.repeat(3_000_000))
  let size = 0
  for await (const part of await sandbox.files.read('large', { format: 'stream' })) size += part.length
  assert.equal(size, 3_000_000)
})

test('a folder is watched', async () => {
  await sandbox.files.makeDir('watched')
  let seen
  const found = new Promise((resolve) => (seen = resolve))
  const handle = await sandbox.files.watchDir('watched', (event) => seen(event.name))
  await sandbox.files.write('watched/new', '1')
  assert.match(await found, /new/)
  await handle.stop()
})

test('a command has its output and exit code', async () => {
  const done = await sandbox.commands.run('echo out; echo err >&2', { envs: { A: '1' } })
  assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['out\n', 'err\n', 0])
  await assert.rejects(sandbox.commands.run('exit 3'), (error) => error instanceof e2b.CommandExitError && error.exitCode === 3)
  assert.equal((await sandbox.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
  await assert.rejects(sandbox.commands.run('sleep 60', { timeoutMs: 500 }), e2b.TimeoutError)
})

test('a command in the background takes input, is listed and killed', async () => {
  const running = await sandbox.commands.run('cat', { background: true, stdin: true })
  assert.ok((await sandbox.commands.list()).some((each) => each.pid === running.pid))
  await sandbox.commands.sendStdin(running.pid, 'line\n')
  await sandbox.commands.closeStdin(running.pid)
  assert.equal((await running.wait()).stdout, 'line\n')
  const sleeping = await sandbox.commands.run('sleep 60', { background: true })
  assert.ok(await sandbox.commands.kill(sleeping.pid))
  await assert.rejects(sleeping.wait(), e2b.CommandExitError)
  assert.ok(!(await sandbox.commands.kill(sleeping.pid)))
})

test('one connects to a command that runs', async () => {
  const first = await sandbox.commands.run('cat', { background: true, stdin: true })
  const second = await sandbox.commands.connect(first.pid)
  await sandbox.commands.sendStdin(first.pid, 'both\n')
  await sandbox.commands.closeStdin(first.pid)
  assert.equal((await second.wait()).stdout, 'both\n')
})

test('a terminal has the size that it is given', async () => {
  let seen = ''
  let look = () => {}
  const shows = (pattern) => new Promise((resolve) => (look = () => pattern.test(seen) && resolve())())
  const onData = (data) => ((seen += new TextDecoder().decode(data)), look())
  const terminal = await sandbox.pty.create({ cols: 90, rows: 30, onData })
  const type = (line) => sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode(line))
  await type('stty size\n')
  await shows(/30 90/)
  await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 24 })
  await type('stty size\n')
  await shows(/24 100/)
  assert.ok(await sandbox.pty.kill(terminal.pid))
})

test('a sandbox is listed with its metadata, and connected to', async () => {
  const page = await Sandbox.list({ query: { metadata: { purpose: 'npm' } } }).nextItems()
  assert.ok(page.some((each) => each.sandboxId === sandbox.sandboxId))
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await again.runCode('x')).text, '40')
  const info = await sandbox.getInfo()
  assert.deepEqual(info.metadata, { purpose: 'npm' })
  await sandbox.setTimeout(120_000)
  assert.ok((await sandbox.getInfo()).endAt > info.startedAt)
  assert.ok((await sandbox.getMetrics())[0].memTotal > 0)
})

test('forks have the variables, each its own', async () => {
  await sandbox.runCode('kept = [1]')
  const forks = await sandbox.fork({ count: 2 })
  sandboxes.push(...forks)
  for (const [index, fork] of forks.entries())
    assert.equal((await fork.runCode(`kept.append(${index}); kept`)).text, `[1, ${index}]`)
  assert.equal((await sandbox.runCode('kept')).text, '[1]')
})

test('a snapshot begins further sandboxes', async () => {
  const origin = await create()
  await origin.runCode('kept = [1]')
  const snapshot = await origin.createSnapshot()
  await origin.runCode('kept.append(2)')
  const made = await Sandbox.create(snapshot.snapshotId)
  sandboxes.push(made)
  assert.equal((await made.runCode('kept')).text, '[1]')
  assert.ok(await Sandbox.deleteSnapshot(snapshot.snapshotId))
})

test('a paused sandbox has its variables again, where states are stored', async (context) => {
  const origin = await create({ lifecycle: { onTimeout: 'pause' } })
  await origin.runCode('kept = [1]')
  try {
    await origin.pause()
  } catch (error) {
    assert.match(error.message, /cenote serve --store/)
    return context.skip('states are not stored here')
  }
  const again = await Sandbox.connect(origin.sandboxId)
  assert.equal((await again.runCode('kept')).text, '[1]')
})

test('a killed sandbox is gone', async () => {
  const gone = await create()
  assert.ok(await gone.isRunning())
  assert.ok(await gone.kill())
  assert.ok(!(await gone.isRunning()))
  assert.ok(!(await Sandbox.kill(gone.sandboxId)))
  await assert.rejects(gone.runCode('1'), e2b.SandboxError)
  await assert.rejects(Sandbox.connect(gone.sandboxId), e2b.NotFoundError)
})

test('a wrong key is refused', async () => {
  await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(40) }), e2b.AuthenticationError)
})
