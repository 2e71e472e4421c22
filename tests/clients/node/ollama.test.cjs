// What the official ollama package for JavaScript expects of a server.
const assert = require("node:assert/strict");
const test = require("node:test");
const { Ollama } = require("ollama");

const model = process.env.GRISTMILL_MODEL;
const ollama = new Ollama({ host: process.env.GRISTMILL_URL });
const scripted = new Ollama({ host: process.env.GRISTMILL_SCRIPT_URL });
const { CALLS, ZURICH, BROKEN } = JSON.parse(process.env.GRISTMILL_SCRIPTS);
const messages = [{ role: "user", content: "Name three colours." }];
const options = { temperature: 0, num_predict: 24 };

test("a stream carries the same text", async () => {
  const whole = await ollama.chat({ model, messages, options });
  let text = "";
  let last;
  for await (const part of await ollama.chat({ model, messages, options, stream: true })) {
    text += part.message.content;
    last = part;
  }
  assert.equal(text, whole.message.content);
  assert.deepEqual([last.done, last.eval_count], [true, whole.eval_count]);
});

test("reasoning and calls, streamed and whole", async () => {
  const tools = ["weather", "nothing"].map((name) => ({
    type: "function",
    function: { name, description: "", parameters: { type: "object", properties: {} } },
  }));
  const say = { model: "scripted", messages: [{ role: "user", content: CALLS }], tools };
  const whole = (await scripted.chat(say)).message;
  const sum = { content: "", thinking: "", tool_calls: [] };
  for await (const part of await scripted.chat({ ...say, stream: true })) {
    sum.content += part.message.content;
    sum.thinking += part.message.thinking ?? "";
    sum.tool_calls.push(...(part.message.tool_calls ?? []));
  }
  for (const message of [whole, sum]) {
    assert.equal(message.content, "Let me see.");
    assert.equal(message.thinking, "hm, \nso");
    const calls = message.tool_calls.map((call) => [call.function.name, call.function.arguments]);
    assert.deepEqual(calls, [["weather", JSON.parse(ZURICH)], ["nothing", {}]]);
  }
});

test("a failure in the stream is thrown", async () => {
  await assert.rejects(async () => {
    const say = { model: "scripted", messages: [{ role: "user", content: BROKEN }], stream: true };
    for await (const _ of await scripted.chat(say));
  }, /fell over/);
});

test("generate, embed, list, show, ps", async () => {
  const answer = await ollama.generate({ model, prompt: "Once upon a time", raw: true, options });
  assert.ok(answer.response.length > 0 && answer.done);
  assert.equal((await ollama.embed({ model, input: ["a", "b"] })).embeddings.length, 2);
  assert.ok((await ollama.list()).models.some((entry) => entry.name.split(":")[0] === model));
  assert.ok((await ollama.show({ model })).capabilities.includes("completion"));
  assert.ok((await ollama.ps()).models.length >= 1);
});

test("what cannot be done is said", async () => {
  await assert.rejects(ollama.chat({ model: "nosuch", messages }), /nosuch/);
  await assert.rejects(ollama.chat({ model, messages, options: { temperature: "hot" } }), /temperature/);
});
