// What the official openai package for JavaScript expects of a server.
const assert = require("node:assert/strict");
const test = require("node:test");
const OpenAI = require("openai");

const model = process.env.GRISTMILL_MODEL;
const client = (url) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const oai = client(process.env.GRISTMILL_URL);
const scripted = client(process.env.GRISTMILL_SCRIPT_URL);
const { CALLS, ZURICH, BROKEN } = JSON.parse(process.env.GRISTMILL_SCRIPTS);
const messages = [{ role: "user", content: "Name three colours." }];
const ask = { model, messages, temperature: 0, max_tokens: 24 };
const tools = ["weather", "nothing"].map((name) => ({
  type: "function",
  function: { name, parameters: { type: "object", properties: {} } },
}));

test("a stream carries the same text", async () => {
  const whole = await oai.chat.completions.create(ask);
  const stream = oai.chat.completions.stream({ ...ask, stream_options: { include_usage: true } });
  let text = "";
  stream.on("content", (piece) => (text += piece));
  const final = await stream.finalChatCompletion();
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(final.choices[0].finish_reason, whole.choices[0].finish_reason);
  assert.equal(final.usage.completion_tokens, whole.usage.completion_tokens);
});

test("calls come through byte for byte, streamed and whole", async () => {
  const say = { model: "scripted", messages: [{ role: "user", content: CALLS }], tools };
  const whole = (await scripted.chat.completions.create(say)).choices[0];
  const streamed = (await scripted.chat.completions.stream(say).finalChatCompletion()).choices[0];
  for (const choice of [whole, streamed]) {
    assert.equal(choice.finish_reason, "tool_calls");
    assert.equal(choice.message.content, "Let me see.");
    const calls = choice.message.tool_calls.map((call) => [call.id, call.function.name, call.function.arguments]);
    assert.deepEqual(calls, [["call_a", "weather", ZURICH], ["call_b", "nothing", "{}"]]);
  }
});

test("responses, streamed and whole", async () => {
  const request = { model, input: "Name three colours.", temperature: 0, max_output_tokens: 24 };
  const whole = await oai.responses.create(request);
  const stream = oai.responses.stream(request);
  let text = "";
  stream.on("response.output_text.delta", (event) => (text += event.delta));
  const final = await stream.finalResponse();
  assert.equal(text, whole.output_text);
  assert.equal(final.status, whole.status);
  const kept = await oai.responses.retrieve(whole.id);
  assert.equal(kept.output[0].content[0].text, text);
});

test("a response's calls", async () => {
  const flat = tools.map((tool) => ({ type: "function", strict: false, ...tool.function }));
  const answer = await scripted.responses.create({ model: "scripted", input: CALLS, tools: flat });
  assert.deepEqual(answer.output.map((item) => item.type), ["reasoning", "message", "function_call", "function_call"]);
  assert.equal(answer.output[2].arguments, ZURICH);
});

test("a failure in the stream is thrown", async () => {
  const say = { model: "scripted", messages: [{ role: "user", content: BROKEN }], stream: true };
  await assert.rejects(async () => {
    for await (const _ of await scripted.chat.completions.create(say));
  }, /fell over/);
});

test("embeddings and models", async () => {
  const answer = await oai.embeddings.create({ model, input: ["a cat", "a dog"] });
  assert.equal(answer.data.length, 2);
  const length = Math.hypot(...answer.data[0].embedding);
  assert.ok(Math.abs(length - 1) < 1e-3);
  assert.ok((await oai.models.list()).data.some((entry) => entry.id.split(":")[0] === model));
});

test("what cannot be done is said", async () => {
  await assert.rejects(oai.chat.completions.create({ ...ask, model: "nosuch" }), { status: 404, code: "model_not_found" });
  await assert.rejects(oai.chat.completions.create({ ...ask, temperature: 3 }), { status: 400, param: "temperature" });
  await assert.rejects(oai.responses.create({ model, input: "x", background: true }), { status: 400, param: "background" });
});
