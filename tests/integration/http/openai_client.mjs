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

const unknown = await refusal({ ...prompt, model: "no-such-model" });
out.not_found = { status: unknown.status, code: unknown.code };
const bad = await refusal({ ...prompt, temperature: "hot" });
out.bad_request = { status: bad.status, param: bad.param };

const long = await client.completions.create({ ...prompt, max_tokens: 480, n: 8, temperature: 1, stream: true });
for await (const _ of long) {
  long.controller.abort();
  break;
}
out.aborted = long.controller.signal.aborted;
console.log(JSON.stringify(out));
