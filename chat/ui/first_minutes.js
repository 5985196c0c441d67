// The page of the first minutes: starts the fetch, shows how far it is, and goes on to the chat.
const [button, progress, said, problem] = ["fetch", "progress", "said", "problem"].map((id) =>
  document.getElementById(id),
);
// A custom header: a page of another site cannot send it, so only this one can start the fetch.
const call = (method) => fetch("setup", { method, headers: { "x-pageturn": "setup" }, cache: "no-store" });

const draw = (state) => {
  const busy = state.stage === "fetching" || state.stage === "checking";
  button.hidden = busy || state.stage === "loading";
  progress.hidden = !busy;
  const bar = progress.querySelector("progress");
  if (state.stage === "checking") bar.removeAttribute("value");
  else bar.value = state.total_bytes ? state.done_bytes / state.total_bytes : 0;
  const megabytes = (bytes) => Math.round(bytes / 1e6);
  said.textContent = !texts[state.stage]
    ? ""
    : texts[state.stage].replace("{name}", state.name) +
      (state.stage === "fetching"
        ? ` · ${megabytes(state.done_bytes)} / ${megabytes(state.total_bytes)} MB`
        : "");
  problem.textContent = state.problem ?? "";
  if (state.problem) button.textContent = texts.again;
};

const follow = async () => {
  try {
    const answer = await call("GET");
    const is = answer.headers.get("content-type") ?? "";
    if (!answer.ok || !is.includes("json")) return location.reload(); // the chat answers now
    const state = await answer.json();
    draw(state);
    if (state.stage === "waiting") return;
  } catch {
    draw({ stage: "loading" }); // between the two servers
  }
  setTimeout(follow, 500);
};

button.addEventListener("click", async () => {
  button.hidden = true;
  await call("POST");
  follow();
});
follow();
