// An MCP client that believes nothing: it drives a server through one scenario
// and checks state, text and exit code of commands whose ends are known.
//
//   node client.mjs ERA SCENARIO DIR SERVER [ARG...]
//
// ERA is legacy (2025-11-25) or auto (2026-07-28 is negotiated); DIR is where
// the server runs its commands.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [era, scenario, dir, command, ...args] = process.argv.slice(2);
const version = { legacy: "2025-11-25", auto: "2026-07-28" }[era];

const client = new Client({ name: "outside", version: "1" }, { versionNegotiation: { mode: era } });
client.onerror = (error) => fail(error);
const transport = new StdioClientTransport({ command, args, env: process.env, stderr: process.env.JOBS_MCP_STDERR ?? "inherit" });

function fail(error) {
  console.error(error);
  process.exit(1);
}

// call returns the answer of a tool, after a look at its form.
async function call(name, args, options) {
  const result = await client.callTool({ name, arguments: args }, options);
  assert.deepEqual(result.content.map((part) => part.type), ["text"]);
  const answer = JSON.parse(result.content[0].text);
  assert.deepEqual(result.structuredContent, answer);
  assert.equal(Boolean(result.isError), answer.status === "error");
  return answer;
}

// start starts a command and returns the id of its job.
async function start(command, ...args) {
  const answer = await call("job__start", { tool: "run", arguments: JSON.stringify({ command, args }) });
  assert.equal(answer.status, "ok", answer.message);
  assert.match(answer.job_id, /^job_[0-9a-f]+$/);
  return answer.job_id;
}

const collect = (id, options) => call("job__collect", { id }, options);

// startGated starts a shell that goes on once its gate is opened.
const startGated = (gate, then) => start("sh", "-c", `until [ -e ${gate} ]; do sleep 0.05; done; ${then}`);
const open = (gate) => writeFileSync(join(dir, gate), "");

// outcome is what must be right about an end.
const outcome = ({ status, exit_code, signal, output_tail }) => ({ status, exit_code, signal, output_tail });
const ended = (status, exit_code, output_tail, signal = undefined) => ({ status, exit_code, signal, output_tail });

const readText = async (uri) => (await client.readResource({ uri })).contents[0].text;

const scenarios = {
  async verbs() {
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map((t) => t.name).sort(), ["job__cancel", "job__check", "job__collect", "job__list", "job__output", "job__start", "job__wait"]);
    for (const tool of tools) {
      assert.equal(tool.inputSchema.type, "object");
      assert.ok(Array.isArray(tool.inputSchema.required));
    }
    assert.match(tools.find((t) => t.name === "job__start").description, /Commands: "sh", "cat"\./);

    const failing = await start("sh", "-c", `echo hello from the job; echo and from its errors >&2; printf '{"answer":42}' >"$LLM_OUTPUT"; exit 3`);
    const failed = await collect(failing);
    assert.deepEqual(outcome(failed), ended("failed", 3, 'hello from the job\nand from its errors\n{"answer":42}'));
    assert.deepEqual(failed.result.output, { answer: 42 });
    assert.equal((await collect(failing)).status, "error", "a result was handed out twice");

    // At once at the end of its input: it has not got the server's.
    const fine = await collect(await start("cat"));
    assert.deepEqual(outcome(fine), ended("completed", 0, ""));
    assert.equal(fine.result, "DONE");

    const endless = await start("sh", "-c", "echo up; exec sleep 300");
    const up = await call("job__wait", { ids: endless, pattern: "^up$" });
    assert.equal(up.match.line, "up");
    assert.equal((await call("job__check", { id: endless })).status, "running");
    const list = await call("job__list", {});
    assert.deepEqual(list.jobs.map(({ id, status, tool }) => ({ id, status, tool })), [{ id: endless, status: "running", tool: "sh" }]);
    assert.equal(list.active_jobs, 1);
    assert.deepEqual(outcome(await call("job__cancel", { id: endless })), ended("cancelled", undefined, "up\n", "SIGTERM"));
    assert.deepEqual((await call("job__list", {})).jobs, []);

    for (const name of ["bash", "/bin/sh", "./sh", "sh -c", "SH", ""]) {
      const refused = await call("job__start", { tool: "run", arguments: JSON.stringify({ command: name }) });
      assert.equal(refused.status, "error", `${name} was started`);
      assert.ok(refused.message.includes(`"sh", "cat"`), refused.message);
    }
    assert.equal((await call("job__check", { id: "job_of_nobody" })).status, "error");
    assert.equal((await call("job__start", { tool: "sh" })).status, "error");
    assert.equal((await call("job__collect", { id: 3 })).status, "error");
  },

  async progress() {
    const timeout = 3000;
    const begun = Date.now();
    const id = await startGated("go", "echo done; exit 7");
    const seen = [];
    const result = await collect(id, {
      timeout,
      resetTimeoutOnProgress: true,
      onprogress({ progress, message }) {
        seen.push(progress);
        assert.match(message, /^sh: running for \d+s, 0 bytes of output$/);
        if (Date.now() - begun > 2 * timeout) open("go");
      },
    });
    assert.deepEqual(outcome(result), ended("failed", 7, "done\n"));
    assert.ok(seen.length > 2, `${seen}`);
    assert.deepEqual(seen, seen.toSorted((a, b) => a - b));
  },

  async timeout() {
    // The SDK of the server answers calls too that the client has given up.
    client.onerror = (error) => /unknown message ID/.test(error.message) || fail(error);
    const id = await startGated("go", "echo still here");
    await assert.rejects(collect(id, { timeout: 200 }), { code: "REQUEST_TIMEOUT" });
    const giveUp = new AbortController();
    const given = assert.rejects(collect(id, { signal: giveUp.signal }));
    giveUp.abort();
    await given;
    assert.equal((await call("job__check", { id })).status, "running");
    open("go");
    assert.deepEqual(outcome(await collect(id)), ended("completed", 0, "still here\n"));
  },

  async parallel() {
    const jobs = Array.from({ length: 50 }, (_, i) => i);
    const ids = await Promise.all(jobs.map((i) => start("sh", "-c", `echo job $0; exit $1`, `${i}`, `${i % 7}`)));
    assert.equal(new Set(ids).size, jobs.length);
    const results = await Promise.all(ids.map((id) => collect(id)));
    for (const i of jobs) {
      assert.deepEqual(outcome(results[i]), ended(i % 7 ? "failed" : "completed", i % 7, `job ${i}\n`));
    }
  },

  async resources() {
    const waiting = new Map();
    const updated = (uri) => new Promise((resolve) => waiting.set(uri, [...(waiting.get(uri) ?? []), resolve]));
    client.setNotificationHandler("notifications/resources/updated", ({ params }) => {
      for (const resolve of waiting.get(params.uri) ?? []) resolve();
      waiting.delete(params.uri);
    });
    const subscribe = async (uri) => {
      if (era === "legacy") await client.subscribeResource({ uri });
      else await client.listen({ resourceSubscriptions: [uri] });
    };
    // until reads a resource again whenever it is said to have changed.
    const until = async (uri, pattern) => {
      for (;;) {
        const next = updated(uri);
        const text = await readText(uri);
        if (pattern.test(text)) return text;
        await next;
      }
    };
    await subscribe("job://list");
    const listed = updated("job://list");
    const id = await startGated("go", "echo new line; until [ -e stop ]; do sleep 0.05; done; exit 5");
    await listed;
    const uri = `job://${id}`;
    assert.match(await readText("job://list"), new RegExp(`1 of 60 places taken\n${id} +running .* sh\n`));
    assert.deepEqual((await client.listResources()).resources.map((r) => r.uri).sort(), [uri, "job://list"].sort());

    await subscribe(uri);
    assert.match(await readText(uri), /^state +running$/m);
    open("go");
    await until(uri, /\nnew line\n$/); // told of output, while the job runs
    open("stop");
    assert.match(await until(uri, /^state +failed, exit 5$/m), /\nnew line\n$/);
    assert.deepEqual(outcome(await collect(id)), ended("failed", 5, "new line\n"), "reading the resource used up the result");
    assert.deepEqual((await client.listResources()).resources.map((r) => r.uri), ["job://list"]);
    assert.match(await readText(uri), /^state +failed, exit 5$/m);
    await assert.rejects(readText("job://nobody"));
  },

  // It is killed while it waits.
  async killed() {
    const id = await start("sh", "-c", process.env.JOBS_MCP_SCRIPT);
    collect(id, { onprogress() {} }).catch(fail);
    await new Promise(() => setInterval(() => {}, 1000));
  },

  // It closes the connection while a job runs.
  async closed() {
    const id = await start("sh", "-c", process.env.JOBS_MCP_SCRIPT);
    assert.equal((await call("job__wait", { ids: id, pattern: "^up$" })).match.line, "up");
  },
};

try {
  await client.connect(transport);
  assert.equal(client.getNegotiatedProtocolVersion(), version);
  await scenarios[scenario]();
  await client.close();
} catch (error) {
  fail(error);
}
process.exit(0);
