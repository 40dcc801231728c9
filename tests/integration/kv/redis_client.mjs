// Uses a store through npm's redis package: ADDRESS of a host and port, PASSWORD.  Ends in an error at the
// first thing that is not as with Redis.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { createClient, RESP_TYPES } from "redis";

const [address, password] = process.argv.slice(2);
const [host, port] = address.split(":");

async function connect(options) {
  const client = createClient({ socket: { host, port: Number(port), reconnectStrategy: false }, password, ...options });
  client.on("error", () => {}); // a failure is told by the call, too
  try {
    await client.connect();
  } catch (error) {
    if (client.isOpen) client.destroy();
    throw error;
  }
  return client;
}

async function values(client, prefix) {
  const key = (name) => `${prefix}:${name}`;
  assert.equal(await client.ping(), "PONG");
  assert.equal(await client.get(key("a")), null);
  assert.equal(await client.set(key("a"), "one"), "OK");
  assert.equal(await client.get(key("a")), "one");
  assert.equal(await client.set(key("a"), "two", { condition: "NX" }), null);
  assert.equal(await client.set(key("n"), "new", { condition: "NX", expiration: { type: "EX", value: 1000 } }), "OK");
  const left = await client.ttl(key("n"));
  assert.ok(left > 500 && left <= 1000, `${left} s`); // the machine may be slow
  assert.equal(await client.set(key("p"), "soon", { expiration: { type: "PX", value: 1 } }), "OK");
  while ((await client.get(key("p"))) !== null); // it ends by the clock
  assert.equal(await client.setEx(key("p"), 500, "later"), "OK");
  assert.ok((await client.pTTL(key("p"))) > 400_000);
  assert.deepEqual([await client.ttl(key("a")), await client.ttl(key("none"))], [-1, -2]);
  assert.equal(await client.mSet({ [key("x")]: "1", [key("y")]: "äöü €" }), "OK");
  assert.deepEqual(await client.mGet([key("x"), key("none"), key("y")]), ["1", null, "äöü €"]);
  assert.equal(await client.exists([key("a"), key("x"), key("none")]), 2);
  assert.equal(await client.strLen(key("y")), 10);
  assert.deepEqual([await client.getRange(key("a"), 1, -1), await client.getRange(key("none"), 0, 5)], ["ne", ""]);
  assert.deepEqual([await client.type(key("a")), await client.setNX(key("a"), "x")], ["string", 0]);
  assert.deepEqual([await client.del([key("x"), key("none")]), await client.unlink(key("y"))], [1, 1]);
  await assert.rejects(client.sendCommand(["SET", key("a"), "x", "EX", "soon"]), /not an integer/);
  await assert.rejects(client.sendCommand(["SET", key("a"), "x", "EX", "0"]), /invalid expire time/);
  assert.deepEqual(await client.multi().set(key("m"), "1").get(key("m")).del(key("m")).exec(), ["OK", "1", 1]);
  await assert.rejects(client.sendCommand(["LPUSH", key("a"), "x"]), /unknown command/);
}

async function binary(client, prefix) {
  const buffers = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  const name = Buffer.concat([Buffer.from(`${prefix}:`), Buffer.from([0, 255, 13, 10])]);
  const all = Buffer.from(Array.from({ length: 1024 }, (_, i) => i % 256));
  const large = randomBytes(8 << 20);
  for (const value of [Buffer.alloc(0), all, large]) {
    assert.equal(await client.set(name, value), "OK");
    assert.equal(await client.strLen(name), value.length);
    assert.ok(value.equals(await buffers.get(name)));
  }
  assert.ok(large.subarray(4 << 20, (4 << 20) + 100).equals(await buffers.getRange(name, 4 << 20, (4 << 20) + 99)));
  assert.equal(await client.del(name), 1);
}

async function pipelines(client, prefix) {
  const names = Array.from({ length: 1000 }, (_, i) => `${prefix}:many:${i}`);
  const set = await Promise.all(names.map((name, i) => client.set(name, `value ${i}`)));
  assert.ok(set.every((reply) => reply === "OK"));
  assert.deepEqual(await Promise.all(names.map((name) => client.get(name))), names.map((_, i) => `value ${i}`));
  const seen = new Set();
  for await (const found of client.scanIterator({ MATCH: `${prefix}:many:*`, COUNT: 100 }))
    for (const name of found) seen.add(name);
  assert.deepEqual([...seen].sort(), [...names].sort());
  assert.equal(await client.del(names), 1000);
  // Failures among them are each told to the one who asked.
  const mixed = await Promise.allSettled(names.map((name, i) => (i % 10 ? client.get(name) : client.sendCommand(["NOPE"]))));
  assert.deepEqual(mixed.map((r) => r.status), names.map((_, i) => (i % 10 ? "fulfilled" : "rejected")));
}

async function refusals() {
  await assert.rejects(connect({ password: `${password}x` }), /WRONGPASS/);
  await assert.rejects(connect({ RESP: 3, password: `${password}x` }), /WRONGPASS/);
  const stranger = await connect({ password: undefined });
  await assert.rejects(stranger.get("a"), /NOAUTH/);
  await stranger.close();
  await assert.rejects(connect({ database: 1 }), /DB index is out of range/);
}

for (const RESP of [2, 3]) {
  const client = await connect({ RESP, name: `client-${RESP}`, database: 0 });
  await values(client, `resp${RESP}`);
  await binary(client, `resp${RESP}`);
  await pipelines(client, `resp${RESP}`);
  assert.match(await client.info(), /hawser_version:/);
  assert.equal(await client.dbSize(), 3 * (RESP - 1));
  assert.deepEqual({ ...(await client.configGet("appendonly")) }, { appendonly: "no" });
  const hello = await client.sendCommand(["HELLO"]);
  assert.equal(RESP === 2 ? hello[hello.indexOf("proto") + 1] : hello.proto, RESP);
  await client.close();
}
await refusals();
console.log("done");
