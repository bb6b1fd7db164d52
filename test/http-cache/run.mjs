// Runs http-cache-tests (https://cache-tests.fyi) through a gateway and compares the results with `expected.txt`.
//
// node run.mjs SUITE BASE [RESULTS]
//   SUITE: the folder of the package http-cache-tests; BASE: the gateway's URL; RESULTS: the file for the JSON results.
//
// The process fails if a required or optimal test does not pass and `expected.txt` does not list the test, or if a listed test
// passes. Tests of the kind "check" ask how a cache behaves. They have no wrong answer and are counted only.

import * as fs from 'node:fs'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [suite, base, results] = process.argv.slice(2)
const load = path => import(pathToFileURL(`${suite}/${path}`))
const { runTests, getResults } = await load('client/runner.mjs')
const groups = (await load('tests/index.mjs')).default
// Surrogate-Control is left out: the gateway does not read it. RFC 9213 has replaced it.
const fetch = createRequire(pathToFileURL(`${suite}/cli.mjs`))('node-fetch')

const tests = new Map()
for (const group of groups) for (const test of group.tests) if (!test.browser_only) tests.set(test.id, test)

const log = console.error
console.error = () => {}
await runTests(groups, fetch, false, base)
console.error = log
const raw = getResults()
if (results) fs.writeFileSync(results, JSON.stringify(raw, null, 2))

// As lib/display.mjs of the suite: a test counts only if the tests that it depends on pass.
function outcome (id) {
  const result = raw[id]
  if (result === undefined) return 'untested'
  if ((tests.get(id).depends_on ?? []).some(other => outcome(other) !== 'pass')) return 'dependency'
  if (result === true) return 'pass'
  return result[0] === 'Setup' ? 'setup' : 'fail'
}

const expected = new Map()
for (const line of fs.readFileSync(new URL('expected.txt', import.meta.url), 'utf8').split('\n')) {
  const [id, ...reason] = line.split(/\s+/)
  if (!id || id.startsWith('#')) continue
  if (reason.length === 0) throw new Error(`expected.txt: ${id} has no reason`)
  if (!tests.has(id)) throw new Error(`expected.txt: the suite has no test ${id}`)
  expected.set(id, reason.join(' '))
}

const counts = {}
const surprises = []
for (const [id, test] of tests) {
  const kind = test.kind ?? 'required'
  const found = outcome(id)
  counts[kind] ??= { pass: 0, fail: 0, other: 0 }
  counts[kind][found in counts[kind] ? found : 'other'] += 1
  if (kind === 'check') continue
  if (found === 'pass' && expected.has(id)) surprises.push(`${id} passes: take the test out of expected.txt`)
  if (found !== 'pass' && !expected.has(id)) surprises.push(`${kind} ${id}: ${found}, ${raw[id]?.[1] ?? 'a test that it depends on fails'}`)
}
for (const [kind, { pass, fail, other }] of Object.entries(counts)) {
  const all = pass + fail + other
  const words = kind === 'check' ? `${pass} yes, ${fail} no` : `${pass} of ${all} pass, ${fail} fail`
  console.log(`http-cache-tests, ${kind}: ${words}, ${other} do not apply`)
}
for (const surprise of surprises) console.error(`http-cache-tests: ${surprise}`)
process.exit(surprises.length > 0 ? 1 : 0)
