// Answers of the page's routes with other values in them, drawn one after the other without loading the page again.

globalThis.hostile = (() => {
  const VALUES = [
    "constructor", "__proto__", "toString", "hasOwnProperty", "hostile-7", "", "\ud800", 7, -1e300, true, null, [], ["hostile-7"], {}, [[{}]], { message: {} },
    { a: "hostile-7" }, JSON.parse('{"toString": 1, "valueOf": 1, "__proto__": 1}'), JSON.parse('{"constructor": {"name": 1}}'),
  ];
  const ask = globalThis.fetch.bind(globalThis);
  const original = {}, answers = {};
  let asked = 0, state = 1, number = 0;
  const chance = () => (state = (state * 48271) % 2147483647) / 2147483647;

  // What a route answers, where there is another answer for it.
  globalThis.fetch = async (url, more) => {
    const path = new URL(url, location.href).pathname;
    if (!(path in answers)) return ask(url, more);
    asked += 1;
    return new Response(answers[path], { headers: { "Content-Type": "application/json" } });
  };

  /** The same value with others in it: for texts alone (`texts`), for anything (`all`), or for nothing. */
  function planted(value, kind, count, fixed = []) {
    const text = typeof value === "string";
    if ((kind === "all" || (kind === "texts" && text)) && chance() < (text ? 0.1 : 0.02)) {
      count.planted += 1;
      return VALUES[Math.floor(chance() * VALUES.length)];
    }
    if (Array.isArray(value)) return value.map((one) => planted(one, kind, count));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, fixed.includes(name) ? one : planted(one, kind, count)]));
  }

  const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))));
  const known = async (path) => (original[path] ??= await (await ask(path)).json());

  async function drawn() {
    const before = asked;
    document.dispatchEvent(new Event("visibilitychange"));
    for (let wait = 0; asked === before && wait < 200; wait += 1) await frames();
    let last = -1;
    while (last !== asked) { // a line that has changed asks for its parts
      last = asked;
      await frames();
      await frames();
    }
  }

  function go(path) {
    history.pushState(history.state, "", path);
    dispatchEvent(new Event("streambank:moved"));
  }

  const parts = ["verdicts", "charts", "events", "findings", "status", "savepoints", "recoveries", "repository", "log"];

  async function job(view, kind, times) {
    const done = { planted: 0, seen: 0, failed: [] };
    state = 7 + view.length;
    const [path, home] = ["/streambank/jobs/orders", "/plugin/streambank/orders"];
    const answer = await known(path);
    for (const part of parts) await known(`${path}/${part}`);
    const question = { dag_id: "orders.restore", run_id: "asked", task_id: "approve", map_index: -1, subject: "Restore it?", may_answer: true, assignees: [] };
    go(view ? `${home}/${view}` : home);
    for (let time = 0; time < times; time += 1) {
      number += 1;
      const digests = {};
      for (const part of parts) {
        const at = new Date(Date.now() - number).toISOString();
        digests[part] = { at, digest: `d${number}` };
        answers[`${path}/${part}`] = JSON.stringify({ ...planted(original[`${path}/${part}`], kind, done, ["error"]), at });
      }
      const whole = time % 2 === 0;
      const line = whole ? answer.line : planted(answer.line, kind, done, ["job", "parts"]);
      answers[path] = JSON.stringify({ ...answer, approvals: [question], now: new Date().toISOString(), line: Object(line) === line ? { ...line, job: "orders", parts: digests } : null });
      await drawn();
      const text = document.querySelector(".sb-page")?.innerText || "";
      const lost = [
        !document.querySelector(".sb-head h1") && "head", document.querySelectorAll(".sb-toolbar .sb-button").length < 6 && "buttons",
        document.querySelectorAll(".sb-tab").length < 6 && "tabs", !document.querySelector(".sb-banner") && "trouble",
        view === "" && !text.includes("Restore it?") && "approval",
      ].filter(Boolean);
      if (text.includes("hostile-7")) done.seen += 1;
      if (text.includes("cannot be drawn") || lost.length) {
        done.failed.push({ time, lost: lost.join(" "), said: [...document.querySelectorAll(".sb-failed")].map((one) => one.innerText).join("; ").slice(0, 300) });
      }
    }
    for (const name of Object.keys(answers)) delete answers[name];
    return done;
  }

  async function list(kind, times) {
    const done = { planted: 0, failed: [] };
    state = 11;
    const path = "/streambank/jobs";
    const answer = await known(path);
    go("/plugin/streambank");
    for (let time = 0; time < times; time += 1) {
      answers[path] = JSON.stringify({ ...answer, now: new Date().toISOString(), jobs: answer.jobs.map((one) => ({ ...one, line: one.line && { ...planted(one.line, kind, done, ["job"]), job: one.job } })) });
      await drawn();
      const missing = answer.jobs.filter((one) => !document.querySelector(`.sb-job-link[href$='/${one.job}']`)).map((one) => one.job);
      const notDrawn = document.querySelector(".sb-page").innerText.includes("cannot be drawn");
      if (missing.length || notDrawn) done.failed.push({ time, lost: missing.join(" ") });
    }
    delete answers[path];
    go("/plugin/streambank/orders");
    return done;
  }

  return { job, list };
})();
