"""The texts that a model reads. They are paid for on every call: each word has to earn its place."""

from __future__ import annotations

DEFAULT_INSTRUCTIONS = "You solve tasks by writing Python code that is executed for you."

DEFAULT_SYSTEM_INSTRUCTIONS = """\
Write one ```{python_block_identifier} block per turn, then stop: you get its output. Names persist; top-level await \
works; import nothing listed below.
- Do all you can per block: chain calls, loop over ids, compute in code; try/except each call, print errors.
- Print only what you need: `show(x)`. Invent nothing.
- Finish without a block, or with `reply(text)` ending one: briefly, with the facts asked for."""

FULL_SYSTEM_INSTRUCTIONS = """\
Write one ```{python_block_identifier} block per turn, then stop: it is run and you get what it printed. Variables, \
functions and imports persist between blocks; top-level await works. Call what is listed below directly, without \
importing it.
- Do as much as possible in each block: chain calls, loop over ids, filter, compare and compute in code, not in your \
head. Start a further block only for what depends on something you have not seen yet.
- Put each call that may fail into a try/except of its own and print its error, so that one failure does not skip \
the rest. Never repeat calls that succeeded.
- Print only what you need next: `show(x)` prints records, tables and nested data compactly. Never print data that \
you only pass on.
- Never make up results. If a fact is missing, look it up; if only the user can know or decide it, ask.
- To finish, answer in plain text without a block, or call `reply(text)` at the end of a block: it counts only if \
that block ran without an error. Answer in the user's terms, briefly, with the facts asked for."""

DEFAULT_SYSTEM_PROMPT_TEMPLATE = """\
{instructions}

{system_instructions}

{context}"""

FUNCTIONS_HEADING = "Functions:"
VARIABLES_HEADING = "Variables:"
TYPES_HEADING = "Types:"
SHAPES_HEADING = "Types in signatures:"
LEAN_SHAPES_HEADING = "Types in signatures (`show(T)` tells more):"
DIFFERING_HEADING = "The namespace is a copy of another one. What is not as it was there:"
AGENTS_HEADING = (
    "Agents (hand over data: `x.runtime.update_variable(name, value)`; set to work: `text = await x.run(task)`; "
    "fetch: `x.runtime.retrieve(name)`; to pass data on, unseen: `x.runtime.share(name)` gives a reference to use "
    "as value):"
)
TOGETHER = {
    "shared": "Other agents work in this namespace too. You are told when one of them rebinds a name that you use.",
    "private": "Other agents work in this runtime too, with names of their own. `shared.name` is seen by all; "
    "`print(shared)` lists what is there.",
}
SKILLS_HEADING = "Skills:"
SKILLS_HINT = "Before you use a skill, `print({activate}(name))` once, then follow what it says."
SKILL_EXPORTS = "Ready to use from the next block on:"
SKILL_FILES_HINT = "It may name further files: `print({read}(name, path))`."
SKILL_WITHOUT_FILES = "The files of this skill are not in the working directory, since the skill {problem}."

CHECKPOINTS_HEADING = "Going back:"
CHECKPOINTS_HINT = (
    "`{checkpoint}(label)` keeps the state as it is when the block has ended; `{rollback}(label)` goes back to it, "
    "variables and all, when its block has ended. Call them last in a block."
)
CHECKPOINT_KEPT = "[The state is kept as {label!r}.]"
CHECKPOINT_REFUSED = "[{label!r}: nothing was done: {reason}]"
CHECKPOINT_GONE = "[The state {label!r} is not kept any more; nothing was done.]"
ROLLED_BACK = "[Rolled back: the namespace is as it was when {label!r} was kept.]"
SEVERED = " [Useless now: {names}.]"
LAST_ROLLBACK = (
    "That was the last block that is taken back: from now on a block that fails leaves what it did."
)

NOW_THERE = "By now:\n{lines}"
NOT_THERE = "Not there any more: {names}."

EMPTY = "(none)"
"""Stands in a custom template where there is nothing to list."""

OUTPUT = "Output:\n{output}"
ERROR = "Error: {error}"
BLOCKED = "Not run, against the rules:\n{violations}"
LAST_TURN = "One turn is left: give the final answer."
PATCHES = """\
To correct step 3 (#3):
```patch
step 3
-old lines
+new lines
reply("...")
```
What depends on it runs again, then the code below."""
FULL_PATCHES = f"""\
{PATCHES}
`function NAME` or `artifact FILE` may stand for `step N`, and the whole new code for the lines."""
STEP = "#{number}:"
STEP_SILENT = "#{number} ok"
DIAGNOSIS = "What {source} is made from:\n{origins}"
NOT_PATCHED = "Nothing was patched: {reason}"
PATCH_FAILED = "Nothing was patched, all is as before: with the patch, step {number} fails.\nError: {error}"
PATCH_BLOCKED = (
    "Nothing was patched, all is as before: {reason}. Patch what does not change that call, or write a block "
    "that goes on from here: there it is called."
)
PATCH_CANCELLED = "Nothing was patched, all is as before: it was stopped."
PATCH_INTERRUPTED = "Interrupted; nothing was patched, or all of it."
PATCHED = "Patched; {ran}."
PATCH_RAN = "ran again: {numbers}"
PATCH_RAN_NOTHING = "nothing had to run"
AS_BEFORE = "... {count} lines as before ..."
OUTPUTS_DIFFER = "Output differs: {numbers}; {handle} reads it."
NOT_BUILT = "What depends on it could not be brought up to date: {reason}"
BUILD_FAILED = (
    "What depends on it was not brought up to date: step {number} fails with the new version.\nError: {error}"
)
REBUILT = "Brought up to date: {names}."
TESTS_RUN = "Tests: {ran} of {all} run, {failed}."
PATCH_SAME = "Nothing else is different."
INTERRUPTED = "Interrupted; the block may have run in part."

STATE_LOST = "Whatever earlier blocks defined, imported or changed is gone. The namespace now has: {names}."
STATE_ROLLED_BACK = "The namespace is as it was before this block."

CODE_CUT_OFF = (
    "Your block was cut off by the length limit and was not run. Write it again, shorter, in full; "
    "split the work over several blocks."
)
TEXT_CUT_OFF = "You were cut off by the length limit. Go on exactly where you stopped."
NO_BLOCK = (
    "Nothing was run: no tools are called here. Write Python in one ```{language} block, and call functions in it; "
    "or give the final answer in plain text."
)
REPEATED = "The same block gave the same output as before. Do something else, or give the final answer."
CANCELLED = "[This task was cancelled before an answer.]"
STOPPED = "[This task ended without an answer: {reason}.]"
NO_WORDS = "(nothing)"
EMPTY_ANSWER = "Your answer was empty. Write a block, or give the final answer."

OUTPUT_POINTER = "[output of {size} characters put away; {handle} reads it]"
STEP_LINE = "[earlier block: {code} -> {outcome}]"
SUMMARY = "[Earlier conversation, summarised]\n{summary}\nVariables in the namespace: {names}."
DROPPED = "[Earlier conversation dropped to save room. Variables in the namespace: {names}.]"
COMPACTION_TRANSCRIPT = "Transcript:\n\n{transcript}"

COMPACTION_INSTRUCTIONS = """\
Summarise this transcript of an agent that works in a persistent Python namespace, for the agent itself to go on \
from. Keep: what the user asked for and decided; facts found, with exact ids, names, numbers; what was done and \
changed, what failed and why; what is left to do. Name variables that hold results instead of repeating their \
content. Leave out code and chatter. At most 400 words, as plain lines."""
