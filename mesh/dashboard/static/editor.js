// The editor of the deploy and edit pages: CodeMirror over the text field, answers from the server.
// Without this file the field is used as it is.
"use strict";
(() => {
  const area = document.querySelector("textarea[data-language]");
  if (!area || typeof CodeMirror === "undefined") return;
  const { Decoration, EditorState, EditorView, HighlightStyle, StateEffect, StateField, StreamLanguage, WidgetType, tags } = CodeMirror;

  const status = document.createElement("p");
  status.className = "hint";
  status.setAttribute("role", "status");

  // Questions to the server; a newer one of the same kind ends the one before.
  const running = {};
  const ask = async (asked, text, line = 1, column = 1, to = "") => {
    if (running[asked]) running[asked].abort();
    const control = running[asked] = new AbortController();
    const body = new URLSearchParams({ asked, text, line, column, new_name: to, app: area.dataset.app, token: area.form.elements.token.value });
    try {
      const answer = await fetch(area.dataset.language, { method: "POST", body, signal: control.signal });
      if (answer.ok) return await answer.json();
      const error = await answer.json().catch(() => ({ message: `the manager answers ${answer.status}` }));
      // What is asked at each key says nothing of its failures, but for the errors.
      if (!["completion", "hover", "notes"].includes(asked)) status.textContent = [`${asked === "errors" ? "Not checked" : "Not done"}: ${error.message}.`, error.detail, error.hint].filter(Boolean).join(" ");
      return null;
    } catch (error) {
      if (error.name !== "AbortError" && asked === "errors") status.textContent = "Not checked: the manager does not answer.";
      return null;
    }
  };
  // Columns of the server are characters, those of CodeMirror are units of UTF-16.
  const place = (doc, offset) => {
    const line = doc.lineAt(offset);
    return [line.number, [...line.text.slice(0, offset - line.from)].length + 1];
  };
  const offset = (doc, line, column) => {
    if (line > doc.lines) return doc.length;
    const at = doc.line(Math.max(1, line));
    return at.from + [...at.text].slice(0, column - 1).join("").length;
  };

  // Colours: words of the tokenizer, by the page.
  const words = new Set(area.dataset.words.split(" "));
  const types = new Set(area.dataset.types.split(" "));
  const siddhi = StreamLanguage.define({
    startState: () => ({ inside: null }),
    token: (stream, state) => {
      if (state.inside) {
        if (stream.skipTo(state.inside)) { stream.match(state.inside); state.end = true; } else stream.skipToEnd();
        const kind = state.inside === "*/" ? "comment" : "string";
        if (state.end) { state.inside = null; state.end = false; }
        return kind;
      }
      if (stream.eatSpace()) return null;
      if (stream.match("--")) { stream.skipToEnd(); return "comment"; }
      if (stream.match("/*")) { state.inside = "*/"; return "comment"; }
      if (stream.match('"""')) { state.inside = '"""'; return "string"; }
      if (stream.match(/^(?:'[^']*'?|"[^"]*"?)/)) return "string";
      if (stream.match(/^@\s*(?:app\s*:\s*)?\w+/i)) return "meta";
      if (stream.match(/^\d+(?:\.\d*)?(?:e[-+]?\d+)?[lfd]?/i)) return "number";
      if (stream.match(/^`[^`]*`?/)) return "variableName";
      const word = stream.match(/^[A-Za-z_]\w*/);
      if (!word) { stream.next(); return null; }
      if (types.has(word[0].toLowerCase())) return "typeName";
      if (words.has(word[0].toLowerCase())) return "keyword";
      return stream.match(/^\s*\(/, false) ? "function" : "variableName";
    },
    tokenTable: { function: tags.function(tags.variableName) },
    languageData: { commentTokens: { line: "--", block: { open: "/*", close: "*/" } }, closeBrackets: { brackets: ["(", "[", "'", '"', "{"] } },
  });
  const colours = HighlightStyle.define([
    { tag: tags.keyword, color: "var(--busy)", fontWeight: "600" },
    { tag: tags.typeName, color: "var(--busy)" },
    { tag: tags.string, color: "var(--good)" },
    { tag: tags.number, color: "var(--good)" },
    { tag: tags.meta, color: "var(--warn)" },
    { tag: tags.function(tags.variableName), color: "var(--link)" },
    { tag: tags.comment, color: "var(--soft)", fontStyle: "italic" },
  ]);
  const look = EditorView.theme({
    "&": { color: "var(--ink)", backgroundColor: "var(--card)", border: "1px solid var(--soft)", borderRadius: "4px", fontSize: "0.93rem" },
    "&.cm-focused": { outline: "3px solid var(--busy)", outlineOffset: "1px" },
    ".cm-scroller": { fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace", minHeight: "22rem", maxHeight: "70vh", overflow: "auto" },
    ".cm-content": { caretColor: "var(--ink)" },
    ".cm-cursor": { borderLeftColor: "var(--ink)" },
    ".cm-gutters": { color: "var(--soft)", backgroundColor: "var(--ground)", borderRight: "1px solid var(--line)" },
    ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--line) 35%, transparent)" },
    "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--mark) !important" },
    ".cm-tooltip": { color: "var(--ink)", backgroundColor: "var(--card)", border: "1px solid var(--soft)", maxWidth: "min(40rem, 90vw)" },
    ".cm-tooltip pre": { margin: "0.4rem 0.6rem", whiteSpace: "pre-wrap", fontFamily: "ui-monospace, monospace" },
    ".cm-tooltip p": { margin: "0.4rem 0.6rem" },
    ".cm-tooltip-autocomplete ul li[aria-selected]": { color: "var(--card) !important", backgroundColor: "var(--busy) !important" },
    ".cm-completionDetail": { color: "inherit", fontStyle: "normal", marginLeft: "1em" },
    ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
    ".cm-diagnostic-warning": { borderLeftColor: "var(--warn)" },
    ".cm-note": { color: "var(--soft)", fontSize: "0.85em" },
    ".cm-lens": { padding: "0 6px", whiteSpace: "pre-wrap" },
    ".cm-diagnosticAction": { backgroundColor: "var(--busy)", color: "var(--card)" },
    ".cm-panels": { color: "var(--ink)", backgroundColor: "var(--ground)" },
  });

  // Edits of an answer about a text; none once that text was changed.
  const change = (view, doc, edits) => {
    if (!view.state.doc.eq(doc)) return;
    view.dispatch({ changes: edits.map((one) => ({ from: offset(doc, one.line, one.column), to: offset(doc, one.line, one.column + one.length), insert: one.text })) });
    view.focus();
  };
  // A line above each query with its group and state, and the type after each selected attribute.
  class Note extends WidgetType {
    constructor(text, kind) { super(); this.text = text; this.kind = kind; }
    eq(other) { return other.text === this.text && other.kind === this.kind; }
    toDOM() {
      const dom = document.createElement(this.kind === "lens" ? "div" : "span");
      dom.className = `cm-note cm-${this.kind}`;
      dom.textContent = this.text;
      return dom;
    }
    ignoreEvent() { return false; }
  }
  const noted = StateEffect.define();
  const notesField = StateField.define({
    create: () => Decoration.none,
    update: (value, transaction) => transaction.effects.filter((one) => one.is(noted)).reduce((all, one) => one.value, value.map(transaction.changes)),
    provide: (field) => EditorView.decorations.from(field),
  });
  const note = async (view) => {
    const { doc } = view.state;
    const found = await ask("notes", doc.toString());
    if (!found || !view.state.doc.eq(doc)) return;
    const lenses = found.lenses.map((one) => Decoration.widget({ widget: new Note(one.text, "lens"), block: true, side: -1 }).range(doc.lineAt(offset(doc, one.line, one.column)).from));
    const kinds = found.types.map((one) => Decoration.widget({ widget: new Note(one.text, "type"), side: 1 }).range(offset(doc, one.line, one.column)));
    view.dispatch({ effects: noted.of(Decoration.set([...lenses, ...kinds], true)) });
  };
  const errors = async (view) => {
    const { doc } = view.state;
    const found = await ask("errors", doc.toString());
    if (!found) return [];
    note(view);
    const wrong = found.filter((one) => !one.is_warning);
    const first = wrong.find((one) => one.position);
    const count = wrong.length === 1 ? "1 error" : `${wrong.length} errors`;
    status.textContent = wrong.length ? `${count}${first ? `, the first in line ${first.position.line}: ${first.message}` : ""}` : "No errors.";
    return found.map((one) => {
      const at = one.position || { line: 1, column: 1, length: 1 };
      const from = Math.min(offset(view.state.doc, at.line, at.column), view.state.doc.length);
      const to = Math.min(offset(view.state.doc, at.line, at.column + at.length), view.state.doc.length);
      const message = [`${one.message} [${one.code}]`, one.detail, one.hint].filter(Boolean).join("\n");
      const actions = one.fixes.map((fix) => ({ name: fix.title, apply: (there) => change(there, doc, fix.edits) }));
      return { from, to, severity: one.is_warning ? "warning" : "error", message, actions };
    });
  };
  const kinds = { keyword: "keyword", stream: "class", attribute: "property", function: "function", window: "function", annotation: "namespace", option: "property", value: "enum", type: "type" };
  const proposals = async (context) => {
    if (!context.explicit && !context.matchBefore(/[\w@#.:'{([]$/)) return null;
    const { doc } = context.state;
    const found = await ask("completion", doc.toString(), ...place(doc, context.pos));
    if (!found || context.aborted || !found.proposals.length) return null;
    return {
      from: offset(doc, found.line, found.column),
      options: found.proposals.map((one, number) => ({ label: one.label, type: kinds[one.kind], detail: one.detail, info: one.doc || undefined, apply: one.insert, boost: -number / 10 })),
      validFor: /^\w*$/,
    };
  };
  const told = CodeMirror.hoverTooltip(async (view, at) => {
    const { doc } = view.state;
    const found = await ask("hover", doc.toString(), ...place(doc, at));
    if (!found) return null;
    const { line, column, length } = found.position;
    const dom = document.createElement("div");
    for (const [tag, text] of [["pre", found.code], ["p", found.doc]]) {
      if (!text) continue;
      const part = document.createElement(tag);
      part.textContent = text;
      dom.append(part);
    }
    return { pos: offset(doc, line, column), end: offset(doc, line, column + length), above: true, create: () => ({ dom }) };
  });

  // Orders with a key and a button each.
  const atCursor = (view) => place(view.state.doc, view.state.selection.main.head);
  const format = async (view) => {
    const { doc } = view.state;
    const found = await ask("format", doc.toString());
    if (!found) { status.textContent = "Not formatted: the text has an error."; return; }
    if (!view.state.doc.eq(doc) || found.text === doc.toString()) return;
    const head = Math.min(view.state.selection.main.head, found.text.length);
    view.dispatch({ changes: { from: 0, to: doc.length, insert: found.text }, selection: { anchor: head }, scrollIntoView: true });
  };
  const define = async (view) => {
    const { doc } = view.state;
    const found = await ask("definition", doc.toString(), ...atCursor(view));
    if (!found) { status.textContent = "Nothing that has a definition is here."; return; }
    view.dispatch({ selection: { anchor: offset(doc, found.line, found.column), head: offset(doc, found.line, found.column + found.length) }, scrollIntoView: true });
    view.focus();
  };
  const rename = async (view) => {
    const { doc } = view.state;
    const found = await ask("name", doc.toString(), ...atCursor(view));
    if (!found) { status.textContent = "There is no name to change here."; return; }
    const to = window.prompt(`New name of ${found.name}, everywhere in the text`, found.name);
    if (!to || to === found.name) return;
    const edits = await ask("rename", doc.toString(), found.position.line, found.position.column, to);
    if (edits) change(view, doc, edits);
  };
  const orders = [["Format", "Shift-Alt-f", "Shift+Alt+F", format], ["To the definition", "F12", "F12", define], ["Rename", "F2", "F2", rename]];

  // In a shadow root CodeMirror's styles are sheets, which the policy of the page allows.
  const host = document.createElement("div");
  host.className = "editor";
  area.before(host);
  const root = host.attachShadow({ mode: "open" });
  const { keymap } = CodeMirror;
  const view = new EditorView({
    parent: root,
    root,
    state: EditorState.create({
      doc: area.value,
      extensions: [
        CodeMirror.lineNumbers(), CodeMirror.history(), CodeMirror.drawSelection(), CodeMirror.highlightActiveLine(),
        CodeMirror.bracketMatching(), CodeMirror.closeBrackets(), siddhi, CodeMirror.syntaxHighlighting(colours), look,
        CodeMirror.autocompletion({ override: [proposals] }), CodeMirror.linter(errors, { delay: 300 }), CodeMirror.lintGutter(), told, notesField,
        keymap.of(orders.map(([, key, , run]) => ({ key, run: (there) => { run(there); return true; } }))),
        // The tabulator leaves the editor, as it leaves the field.
        keymap.of([...CodeMirror.closeBracketsKeymap, ...CodeMirror.defaultKeymap, ...CodeMirror.historyKeymap, ...CodeMirror.completionKeymap, ...CodeMirror.lintKeymap]),
        EditorState.tabSize.of(4),
        EditorView.contentAttributes.of({ "aria-label": "SiddhiQL", spellcheck: "false", tabindex: "0" }),
        EditorView.updateListener.of((update) => { if (update.docChanged) area.value = update.state.doc.toString(); }),
      ],
    }),
  });
  area.hidden = true;
  area.required = false;
  const tools = document.createElement("p");
  tools.className = "actions tools";
  for (const [name, , key, run] of orders) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "quiet", textContent: name, title: key });
    // The cursor stays where it is in the text.
    button.addEventListener("mousedown", (event) => event.preventDefault());
    button.addEventListener("click", () => run(view));
    tools.append(button);
  }
  host.after(status, tools);
  const label = document.querySelector(`label[for="${area.id}"]`);
  if (label) {
    label.removeAttribute("for");
    label.addEventListener("click", () => view.focus());
  }
  // Keys of the page are not for a text that is written.
  host.addEventListener("keydown", (event) => event.stopPropagation());
})();
