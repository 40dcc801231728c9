// Asks a server through OpenAI's package and prints what came back, as JSON: URL MODEL.
import OpenAI from "openai";

const [url, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: url, apiKey: "not asked for", maxRetries: 0 });
const prompt = { model, prompt: "And God said", temperature: 0, max_tokens: 32 };
const chat = {
  model,
  messages: [{ role: "system", content: "Be brief." }, { role: "user", content: "Who was Moses?" }],
  temperature: 0,
  max_tokens: 16,
};
const out = {};

out.models = (await client.models.list()).data.map((m) => m.id);
out.completion = (await client.completions.create(prompt)).choices[0].text;
out.completion_stream = "";
for await (const chunk of await client.completions.create({ ...prompt, stream: true }))
  out.completion_stream += chunk.choices[0].text;

const answer = await client.chat.completions.create(chat);
out.chat = answer.choices[0].message.content;
out.usage = answer.usage;
out.chat_stream = "";
const stream = await client.chat.completions.create({
  ...chat,
  stream: true,
  stream_options: { include_usage: true },
});
for await (const chunk of stream) out.chat_stream += chunk.choices[0]?.delta?.content ?? "";

async function refusal(request) {
  try {
    await client.completions.create(request);
  } catch (error) {
    return error;
  }
  throw new Error("it was not refused");
}
// The package asks for base64 and decodes it, unless it is told to ask for numbers.
const input = ["And God said", "nine hundred years"];
const packed = await client.embeddings.create({ model, input });
const numbers = await client.embeddings.create({ model, input, encoding_format: "float" });
out.embeddings = packed.data.map((d) => Array.from(d.embedding, Math.fround));
out.embedding_numbers = numbers.data.map((d) => d.embedding.map(Math.fround));

out.request_id = (await client.chat.completions.create(chat))._request_id;
const unknown = await refusal({ ...prompt, model: "no-such-model" });
out.not_found = { status: unknown.status, code: unknown.code };
const bad = await refusal({ ...prompt, temperature: "hot" });
out.bad_request = { status: bad.status, param: bad.param };

// Tools: asked for, by name, streamed, and the result sent back.
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather of a city.",
    parameters: {
      type: "object",
      properties: { city: { enum: ["Babylon", "Jericho"] }, days: { $ref: "#/$defs/days" } },
      required: ["city", "days"],
      additionalProperties: false,
      $defs: { days: { type: "integer", minimum: 1, maximum: 7 } },
    },
  },
};
const noop = { type: "function", function: { name: "noop" } };
const asked = {
  model,
  messages: [{ role: "user", content: "How is the weather in Jericho?" }],
  tools: [weather, noop],
  tool_choice: "required",
  parallel_tool_calls: false,
  temperature: 0,
  seed: 7,
  max_tokens: 128,
};
const plain = ({ id, ...call }) => call;
const called = (await client.chat.completions.create(asked)).choices[0];
out.call = called;
const parts = [];
let deltas = 0;
for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
  for (const part of chunk.choices[0]?.delta?.tool_calls ?? []) {
    deltas++;
    parts[part.index] ??= { id: part.id, type: part.type, function: { name: part.function.name, arguments: "" } };
    parts[part.index].function.arguments += part.function.arguments ?? "";
  }
  out.call_finish = chunk.choices[0]?.finish_reason ?? out.call_finish;
}
out.call_deltas = deltas;
out.call_stream = parts.map(plain);
out.call_plain = called.message.tool_calls.map(plain);
// Cut off everywhere in a call.
out.cut = [];
for (const max_tokens of [1, 8, 16, 24, 32, 40]) {
  const request = { ...asked, tools: [weather], max_tokens };
  const { finish_reason, message } = (await client.chat.completions.create(request)).choices[0];
  let streamed = "", reason;
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    streamed += chunk.choices[0].delta.content ?? "";
    reason = chunk.choices[0].finish_reason ?? reason;
  }
  out.cut.push({ finish_reason, reason, streamed, content: message.content, calls: message.tool_calls ?? null });
}
const named = { type: "function", function: { name: "noop" } };
out.named = (await client.chat.completions.create({ ...asked, tool_choice: named })).choices[0].message.tool_calls;
// It was a beta before version 5.
const toolClient = client.chat.completions.runTools ? client.chat.completions : client.beta.chat.completions;
// The package's own loop: it calls the function, sends the result and goes on.
let turns = 0;
const runner = toolClient.runTools({
  ...asked,
  tool_choice: { type: "function", function: { name: "get_weather" } },
  tools: [{ ...weather, function: { ...weather.function, parse: JSON.parse, function: ({ city, days }) => {
    turns++;
    return `${days} days of sun in ${city}`;
  } } }],
});
await runner.finalChatCompletion().catch((error) => { out.runner_error = String(error); });
out.run = { turns, messages: runner.messages.map((m) => m.role) };
const result = { role: "tool", tool_call_id: called.message.tool_calls[0].id, content: "sun" };
const answered = await client.chat.completions.create({
  ...asked, tool_choice: "none", max_tokens: 8, messages: [...asked.messages, called.message, result],
});
out.after = { content: answered.choices[0].message.content, calls: answered.choices[0].message.tool_calls ?? null };
// The model is free to call; a grammar of ours makes it do so.
const free = await client.chat.completions.create({
  ...asked, tool_choice: "auto",
  grammar: 'root ::= "So. <tool_call>{\\"name\\": \\"noop\\", \\"arguments\\": {}}</tool_call>"',
});
out.free = { content: free.choices[0].message.content, calls: free.choices[0].message.tool_calls.map(plain) };
const person = {
  type: "object",
  properties: { name: { enum: ["Adam", "Eve"] }, age: { type: "integer", minimum: 0, maximum: 999 } },
  required: ["name", "age"],
  additionalProperties: false,
};
const shaped = await client.chat.completions.create({
  model, messages: asked.messages, max_tokens: 256, temperature: 0,
  response_format: { type: "json_schema", json_schema: { name: "person", schema: person, strict: true } },
});
out.shaped = JSON.parse(shaped.choices[0].message.content);
out.tools_refused = [];
for (const change of [{ tools: [] }, { tool_choice: "perhaps" }, { tool_choice: { type: "function", function: { name: "x" } } },
  { tools: [{ type: "function", function: { name: "f", parameters: { not: {} } } }] }]) {
  try {
    await client.chat.completions.create({ ...asked, ...change });
  } catch (error) {
    out.tools_refused.push([error.status, error.param]);
  }
}

// The Responses API: texts, streams, calls, a schema, a turn that follows.
const flat = ({ type, function: f }) => ({ type, ...f });
const asks = { model, instructions: "Be brief.", input: "Who was Moses?", temperature: 0, max_output_tokens: 16 };
const calls = {
  ...asks, instructions: null, input: asked.messages, tools: [flat(weather), flat(noop)], tool_choice: "required",
  parallel_tool_calls: false, max_output_tokens: 128, seed: 7,
};
const response = await client.responses.create(asks);
out.response = response;
async function follow(request) {
  const stream = client.responses.stream(request);
  const types = [], numbers = [];
  let text = "", args = "", last;
  for await (const event of stream) {
    types.push(event.type);
    last = event.response;
    numbers.push(event.sequence_number);
    if (event.type === "response.output_text.delta") text += event.delta;
    if (event.type === "response.function_call_arguments.delta") args += event.delta;
  }
  return { types, numbers, text, args, last, final: await stream.finalResponse() };
}
out.response_stream = await follow(asks);
const calling = await client.responses.create(calls);
out.response_call = calling.output;
out.response_call_stream = await follow(calls);
const result2 = { type: "function_call_output", call_id: calling.output[0].call_id, output: "sun" };
out.response_after = await client.responses.create({
  ...calls, tool_choice: "none", max_output_tokens: 8, input: [...asked.messages, ...calling.output, result2],
});
out.response_free = await follow({
  ...calls, tool_choice: "auto",
  grammar: 'root ::= "So. <tool_call>{\\"name\\": \\"noop\\", \\"arguments\\": {}}</tool_call>"',
});
out.response_shaped = await client.responses.parse({
  ...asks, max_output_tokens: 256, text: { format: { type: "json_schema", name: "person", schema: person, strict: true } },
});
out.response_cut = await follow({ ...calls, tools: [flat(weather)], max_output_tokens: 24 });
out.responses_refused = [];
for (const change of [{ previous_response_id: "resp_1" }, { input: [{ type: "item_reference", id: "msg_1" }] },
  { input: [{ role: "user", content: [{ type: "input_image", image_url: "x" }] }] }, { tools: [{ type: "web_search" }] },
  { tool_choice: { type: "function", name: "x" } }, { max_output_tokens: 0 }, { background: true }, { input: [] },
  { tool_choice: "auto", text: { format: { type: "json_schema", name: "s", schema: { not: {} } } } }, { model: "no-such-model" }]) {
  try {
    await client.responses.create({ ...calls, ...change });
  } catch (error) {
    out.responses_refused.push([error.status, error.param]);
  }
}

const long = await client.completions.create({ ...prompt, max_tokens: 480, n: 8, temperature: 1, stream: true });
for await (const _ of long) {
  long.controller.abort();
  break;
}
out.aborted = long.controller.signal.aborted;
console.log(JSON.stringify(out));
