// Calls `brig mcp` with the npm SDKs: client.mjs BRIG PACKAGE, where PACKAGE is the one to use.
import assert from "node:assert/strict";

const [brig, name] = process.argv.slice(2);
const isOld = name === "@modelcontextprotocol/sdk";
const { Client } = await import(isOld ? `${name}/client/index.js` : name);
const { StdioClientTransport } = await import(`${name}${isOld ? "/client" : ""}/stdio${isOld ? ".js" : ""}`);

const client = new Client({ name: "test", version: "1" });
await client.connect(new StdioClientTransport({ command: brig, args: ["mcp", "--quiet"], env: process.env }));
assert.equal(client.getServerVersion().name, "brig");
const { tools } = await client.listTools();
assert.equal(tools.length, 6);
// With an output schema the SDK checks every result against it.
const call = async (tool, args) => (await client.callTool({ name: tool, arguments: args })).structuredContent;
assert.equal((await call("run_code", { code: "console.log(6 * 7)", language: "node" })).stdout, "42\n");
await call("write_file", { session: "s", path: "a.txt", content: "text" });
assert.equal((await call("read_file", { session: "s", path: "a.txt" })).content, "text");
assert.equal((await call("list_files", { session: "s" })).entries.length, 1);
const refused = await client.callTool({ name: "run_code", arguments: { code: "1", network: "on" } });
assert.equal(refused.isError, true);
const { contents } = await client.readResource({ uri: "brig://session/s/a.txt" });
assert.equal(contents[0].text, "text");
assert.deepEqual(await call("end_session", { session: "s" }), { ended: true });
await client.close();
console.log(`${name}: connected, called`);
