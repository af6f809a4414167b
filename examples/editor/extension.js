// Starts `mesh lsp` for files that end in .siddhi, and stops it with the window.
"use strict";

const { window, workspace } = require("vscode");

let client;

function activate() {
  let LanguageClient;
  try {
    ({ LanguageClient } = require("vscode-languageclient/node"));
  } catch {
    // A copy of the folder without its packages still has the colours.
    return undefined;
  }
  const settings = workspace.getConfiguration("mesh");
  const server = { command: settings.get("command"), args: ["lsp", ...settings.get("lspArguments")] };
  const options = { documentSelector: [{ language: "siddhiql" }] };
  client = new LanguageClient("mesh", "mesh", server, options);
  return client.start().catch((error) => {
    window.showErrorMessage(`mesh lsp did not start: ${error.message}. pip install 'nats-event-mesh[lsp]'`);
  });
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
