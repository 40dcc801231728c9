// Asks a server through Anthropic's package and prints what came back, as JSON: URL MODEL KEY GRAMMAR.
import Anthropic from "@anthropic-ai/sdk";

const [baseURL, model, apiKey, grammar] = process.argv.slice(2);
const client = new Anthropic({ baseURL, apiKey, maxRetries: 0 });
const ask = {
  model, system: "Be brief.", messages: [{ role: "user", content: "Who was Moses?" }], temperature: 0, max_tokens: 16,
};
const tools = [
  { name: "get_weather", description: "weather", input_schema: {
    type: "object", properties: { city: { enum: ["Rom", "Ur"] }, days: { type: "integer" } }, required: ["city", "days"],
  } },
  { name: "noop", input_schema: { type: "object", properties: {} } },
];
const calls = { ...ask, tools, tool_choice: { type: "tool", name: "get_weather" }, max_tokens: 128, seed: 7 };
const out = {};

async function follow(request) {
  const stream = client.messages.stream(request);
  const kinds = [];
  stream.on("streamEvent", (event) => kinds.push(event.type));
  const final = await stream.finalMessage();
  return { kinds, final };
}
out.whole = await client.messages.create(ask);
out.stream = await follow(ask);
out.blocks = await client.messages.create({
  ...ask, system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }],
  messages: [{ role: "user", content: [{ type: "text", text: "Who was Moses?" }] }],
});
out.count = await client.messages.countTokens({ model, system: ask.system, messages: ask.messages });
out.call = await client.messages.create(calls);
out.call_stream = await follow(calls);
const used = out.call.content[0];
out.after = await client.messages.create({
  ...calls, tool_choice: { type: "none" }, max_tokens: 8, messages: [
    ...ask.messages, { role: "assistant", content: out.call.content },
    { role: "user", content: [{ type: "tool_result", tool_use_id: used.id, content: [{ type: "text", text: "sun" }] }] },
  ],
});
// Reasoning, a text and two calls, as a grammar of the test's makes the model write them.
const free = { ...calls, tool_choice: { type: "auto" }, grammar, max_tokens: 300 };
out.parts = await client.messages.create(free);
out.parts_stream = await follow(free);
out.refused = [];
for (const change of [{ temperature: 5 }, { max_tokens: 0 }, { messages: [] }, { model: "no-such-model" },
  { tool_choice: { type: "tool", name: "x" } }, { tools: [{ type: "web_search_20250305", name: "web_search" }] }]) {
  try {
    await client.messages.create({ ...calls, ...change });
  } catch (error) {
    out.refused.push([error.status, error.error.error.type, error.constructor.name]);
  }
}
const other = new Anthropic({ baseURL, apiKey: "not-a-key-of-the-server", maxRetries: 0 });
out.stranger = await other.messages.create(ask).catch((error) => error.constructor.name);
const bearer = new Anthropic({ baseURL, apiKey: null, authToken: apiKey, maxRetries: 0 });
out.bearer = (await bearer.messages.create(ask)).content;
const long = client.messages.stream({ ...ask, max_tokens: 480, temperature: 1 });
for await (const _ of long) {
  long.abort();
  break;
}
out.aborted = long.controller.signal.aborted;
console.log(JSON.stringify(out));
