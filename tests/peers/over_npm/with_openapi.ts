// A client whose types are generated from the server's OpenAPI document: `npx openapi-typescript` makes `cenote.d.ts`.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import createClient from 'openapi-fetch'
import type { components, paths } from './cenote.js'

type CellResult = components['schemas']['CellResult']
type Line = { type: 'stdout' | 'stderr' | 'dropped'; data: string } | { type: 'result'; data: CellResult }

const client = createClient<paths>({
  baseUrl: process.env.CENOTE_URL,
  headers: { Authorization: `Bearer ${process.env.CENOTE_TOKEN}` },
})
const path = { runtime: 'typed' }

async function run(code: string): Promise<CellResult> {
  const { data, error } = await client.POST('/v1/runtimes/{runtime}/cells', { params: { path }, body: { code } })
  assert.ok(data && typeof data !== 'string', error?.error.message) // a text is an answer that is streamed
  return data
}

async function* streamed(code: string): AsyncGenerator<Line> {
  const { data } = await client.POST('/v1/runtimes/{runtime}/cells', {
    params: { path },
    body: { code },
    headers: { Accept: 'application/x-ndjson' },
    parseAs: 'stream',
  })
  let text = ''
  for await (const part of data!.pipeThrough(new TextDecoderStream())) {
    const lines = (text + part).split('\n')
    text = lines.pop()!
    for (const line of lines) yield JSON.parse(line)
  }
}

test('a runtime is made, with a policy that its types describe', async () => {
  const { data } = await client.PUT('/v1/runtimes/{runtime}', {
    params: { path },
    body: { policy: { memory: '1GiB', processes: 64 } },
  })
  assert.equal(data?.name, 'typed')
  const { data: all } = await client.GET('/v1/runtimes')
  assert.ok(all?.some((each) => each.name === 'typed'))
})

test('a wrong option is refused with its name', async () => {
  const { error } = await client.PUT('/v1/runtimes/{runtime}', {
    params: { path: { runtime: 'other' } },
    body: { policy: { processes: 1 } },
  })
  assert.match(error!.error.message, /processes/)
})

test('a cell is streamed while it runs', async () => {
  await client.DELETE('/v1/runtimes/{runtime}/files/{path}', { params: { path: { ...path, path: 'go' } } })
  const seen: string[] = []
  const code = "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('last')\n6 * 7"
  for await (const line of streamed(code)) {
    if (line.type === 'result') seen.push(`= ${line.data.value}`)
    else {
      seen.push(line.data)
      // The cell ends only when the first line has come.
      if (line.data.startsWith('first'))
        await client.POST('/v1/runtimes/{runtime}/programs', { params: { path }, body: { command: ['touch', 'go'] } })
    }
  }
  assert.equal(seen.join(''), 'first\nlast\n= 42')
})

test('a failure is a field of the result', async () => {
  const result = await run('1 / 0')
  assert.deepEqual([result.success, result.error?.type, result.verdict], [false, 'ZeroDivisionError', 'task'])
})

test('variables, files and folders', async () => {
  await client.PUT('/v1/runtimes/{runtime}/variables/{variable}', {
    params: { path: { ...path, variable: 'config' } },
    body: { least: 20 },
  })
  assert.equal((await run("config['least']")).value, '20')
  const { data: value } = await client.GET('/v1/runtimes/{runtime}/variables/{variable}', {
    params: { path: { ...path, variable: 'config' } },
  })
  assert.deepEqual(value, { least: 20 })
  const file = { params: { path: { ...path, path: 'folder/a.txt' } } }
  await client.POST('/v1/runtimes/{runtime}/programs', { params: { path }, body: { command: 'mkdir -p folder' } })
  await client.PUT('/v1/runtimes/{runtime}/files/{path}', { ...file, body: 'text', bodySerializer: (body) => body })
  const { data: bytes } = await client.GET('/v1/runtimes/{runtime}/files/{path}', { ...file, parseAs: 'text' })
  assert.equal(bytes, 'text')
  const { data: entries } = await client.GET('/v1/runtimes/{runtime}/files', {
    params: { path, query: { path: 'folder' } },
  })
  assert.deepEqual(entries?.map((each) => [each.name, each.kind, each.size]), [['a.txt', 'file', 4]])
})

test('the history has each step, and a rollback goes back', async () => {
  const { step } = await run('kept = [1]')
  await run('kept.append(2)')
  const { data: steps } = await client.GET('/v1/runtimes/{runtime}/steps', { params: { path } })
  assert.deepEqual(steps?.slice(-2).map((each) => [each.code, each.author, each.writes.includes('name:kept') || each.writes.includes('kept')]), [
    ['kept = [1]', 'http', true],
    ['kept.append(2)', 'http', true],
  ])
  const { data: back } = await client.POST('/v1/runtimes/{runtime}/rollback', { params: { path }, body: { to: step } })
  assert.equal(back?.step, step)
  assert.equal((await run('kept')).value, '[1]')
})

test('a runtime that is not there is an error with a type', async () => {
  const { error, response } = await client.GET('/v1/runtimes/{runtime}/steps', { params: { path: { runtime: 'nothing' } } })
  assert.equal(response.status, 404)
  assert.equal(error?.error.type, 'NotOpenError')
})

test('it ends', async () => {
  const { response } = await client.DELETE('/v1/runtimes/{runtime}', { params: { path } })
  assert.equal(response.status, 204)
})
