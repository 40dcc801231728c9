// Tool calls that a model writes unforced, through the openai package: whole and streamed.
import OpenAI from "openai";

const [baseURL, model, request] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none" });
const asked = { model, ...JSON.parse(request) };
const { finish_reason, message } = (await client.chat.completions.create(asked)).choices[0];
const streamed = { content: "", reasoning_content: "", tool_calls: [] };
for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
  const { delta, finish_reason } = chunk.choices[0];
  streamed.content += delta.content ?? "";
  streamed.reasoning_content += delta.reasoning_content ?? "";
  for (const { index, ...call } of delta.tool_calls ?? []) {
    streamed.tool_calls[index] ??= { ...call, function: { ...call.function, arguments: "" } };
    streamed.tool_calls[index].function.arguments += call.function.arguments;
  }
  streamed.finish_reason = finish_reason ?? streamed.finish_reason;
}
console.log(JSON.stringify([{ finish_reason, ...message }, streamed]));
