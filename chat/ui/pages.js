// The pages beside the chat: which one is in front, and clicks in the HTML that they are drawn with.
(() => {
  const root = document.documentElement;
  const pageturn = (window.pageturn ??= {});
  const VIEWS = ["chat", "documents", "latency", "memory"];
  let tell = null; // tells the server which page is open, so that only its clock runs
  let reckon = null; // asks what KV would take with the numbers of the form

  const asked = () => {
    const view = new URLSearchParams(location.search).get("view");
    return VIEWS.includes(view) ? view : "chat";
  };

  const show = (view) => {
    root.dataset.view = view;
    for (const link of document.querySelectorAll("[data-view]:not(:root)")) {
      if (link.dataset.view === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    tell?.(`open_${view}`);
    if (view === "memory") reckon?.();
  };

  root.dataset.view = asked(); // before anything is drawn

  pageturn.view = (view) => {
    if (view === root.dataset.view) return;
    const address = new URL(location.href);
    if (view === "chat") address.searchParams.delete("view");
    else address.searchParams.set("view", view);
    history.pushState(history.state, "", address);
    show(view);
  };

  pageturn.views = (element, trigger) => {
    tell = trigger;
    show(root.dataset.view);
  };

  // Clocks ask for the version of what there is, which costs the server next to nothing; what is
  // shown is asked for when that is another one, and once a minute in any case. A page that nobody
  // sees asks for nothing, and one on which nothing happens asks less often.
  const ANYWAY_MS = 60_000;
  const FRESH_MS = 900;
  const QUIET_AFTER_MS = 20_000;
  const QUIET_FRESH_MS = 3_500;
  const known = {};
  let version = "";
  let fetched = -Infinity;
  let stirred = 0; // when something last changed, or somebody did something
  const stir = () => (stirred = performance.now());
  for (const happens of ["pointerdown", "keydown", "visibilitychange"])
    document.addEventListener(happens, stir, { capture: true, passive: true });

  const newest = async () => {
    const now = performance.now();
    const fresh = now - stirred > QUIET_AFTER_MS ? QUIET_FRESH_MS : FRESH_MS;
    if (now - fetched < fresh) return version;
    fetched = now;
    let answer = "";
    try {
      const told = await fetch("news", { cache: "no-store" });
      if (told.ok) answer = await told.text();
    } catch {
      // Whoever asks finds out what is wrong, and says so.
    }
    if (answer !== version) stir();
    return (version = answer);
  };
  // For what is never the same twice.
  pageturn.look = (part) => {
    if (!document.hidden) tell?.(`news_${part}`);
  };
  pageturn.news = async (part) => {
    if (document.hidden) return;
    const told = await newest();
    const last = known[part];
    const now = performance.now();
    if (told && last?.version === told && now - last.at < ANYWAY_MS) return;
    known[part] = { version: told, at: now };
    tell?.(`news_${part}`);
  };

  pageturn.arrive = () => show(asked()); // everything is there now

  window.addEventListener("popstate", () => {
    if (asked() !== root.dataset.view) show(asked());
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[data-view]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    pageturn.view(link.dataset.view);
  });

  pageturn.memory = (element, trigger) => {
    element.addEventListener("click", (event) => {
      const button = event.target.closest("[data-free]");
      if (button) trigger("free", { session: button.dataset.free });
    });
  };

  pageturn.reckon = (element, trigger, event) => {
    const form = element.querySelector("form");
    let waiting = 0;
    let numbers = {};
    reckon = () => {
      if (!form.checkValidity()) return;
      numbers = Object.fromEntries(new FormData(form));
      trigger(event);
    };
    pageturn.numbers = () => JSON.stringify(numbers);
    form.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(reckon, 250);
    });
    form.addEventListener("submit", (enter) => enter.preventDefault());
    if (root.dataset.view === "memory") reckon();
  };

  // What is read beside the table: { document, page, asked }, where `asked` says that its removal
  // has been asked about; null where nothing is. The panel is drawn anew for as long as its document
  // changes, and an answer may come late: this, and not the panel, is what the person wants.
  let reading = null;
  let tellTable = null; // one event for all that is read, so that of several the last is shown
  const read = (document, page = 1) => {
    const same = reading?.document === document && reading.page === page;
    reading = { document, page, asked: same && reading.asked };
    tellTable("read");
  };
  pageturn.wanted = () => JSON.stringify(reading);

  // The table is drawn anew whenever a document changes: order and filter are put on it again.
  pageturn.library = (element, trigger, watch) => {
    tellTable = trigger;
    let column = null;
    let downwards = false;
    const find = () => document.querySelector("#pt-library-find textarea, #pt-library-find input");

    const arrange = () => {
      const body = element.querySelector("tbody");
      if (!body) return;
      const rows = [...body.rows];
      if (column) {
        const order = new Intl.Collator(undefined, { numeric: true });
        rows.sort((a, b) => order.compare(a.dataset[column], b.dataset[column]));
        if (downwards) rows.reverse();
        body.append(...rows);
      }
      for (const head of element.querySelectorAll("th[data-column]")) {
        if (head.dataset.column === column) {
          head.setAttribute("aria-sort", downwards ? "descending" : "ascending");
        } else head.removeAttribute("aria-sort");
      }
      const wanted = (find()?.value ?? "").trim().toLowerCase();
      for (const row of rows) row.hidden = !row.dataset.find.includes(wanted);
      const none = element.querySelector(".pt-no-match");
      if (none) none.hidden = rows.some((row) => !row.hidden);
    };

    watch("value", () => {
      arrange();
      if (reading && document.querySelector("[data-reading][data-unsettled]")) {
        read(reading.document, reading.page);
      }
    });
    document.addEventListener("input", (event) => {
      if (event.target.closest?.("#pt-library-find")) arrange();
    });
    element.addEventListener("click", (event) => {
      const sort = event.target.closest("[data-sort]")?.dataset.sort;
      const open = event.target.closest(".pt-open-document") ?? event.target.closest("tr[data-document]");
      if (sort) {
        downwards = sort === column && !downwards;
        column = sort;
        arrange();
      } else if (open) {
        read(open.dataset.document);
      }
    });
  };

  pageturn.reading = (element, trigger, watch) => {
    let shown = null;
    watch("value", () => {
      const panel = element.querySelector("[data-reading]");
      const id = panel?.dataset.reading ?? null;
      const isNew = id !== shown;
      shown = id;
      if (!panel) return;
      if (!reading) {
        trigger("close"); // it was closed, or removed, while this was on its way
        return;
      }
      const sure = panel.querySelector(".pt-sure");
      if (sure && id === reading.document) sure.hidden = !reading.asked;
      if (isNew && matchMedia("(max-width: 940px)").matches) panel.scrollIntoView();
    });
    element.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      const panel = element.querySelector("[data-reading]");
      if (!button || !panel) return;
      const id = panel.dataset.reading;
      const sure = panel.querySelector(".pt-sure");
      const ask = (asked) => {
        sure.hidden = !asked;
        if (reading) reading.asked = asked;
      };
      if (button.dataset.page) read(id, Number(button.dataset.page));
      else if ("again" in button.dataset) {
        reading = { document: id, page: 1, asked: false };
        trigger("again", { document: id });
      } else if ("removeDocument" in button.dataset) {
        reading = null;
        trigger("remove", { document: id });
      } else if ("askRemove" in button.dataset) {
        ask(true);
        sure.querySelector("[data-remove-document]").focus();
      } else if ("keep" in button.dataset) ask(false);
      else if ("close" in button.dataset) {
        reading = null;
        trigger("close");
      }
    });
  };

  // A dropped folder: Gradio takes files only, so its files are put where it takes them from.
  const within = async (entry) => {
    if (entry.name.startsWith(".")) return [];
    if (entry.isFile) return [await new Promise((done, fail) => entry.file(done, fail))];
    const reader = entry.createReader();
    const files = [];
    for (;;) {
      // One call gives a part of a folder only; an empty part is the end.
      const part = await new Promise((done, fail) => reader.readEntries(done, fail));
      if (!part.length) return files;
      for (const inner of part) files.push(...(await within(inner)));
    }
  };
  document.addEventListener(
    "drop",
    async (event) => {
      const zone = event.target.closest?.("#pt-library-upload, #pt-upload");
      if (!zone) return;
      const items = [...(event.dataTransfer?.items ?? [])];
      const entries = items.map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
      if (!entries.some((entry) => entry.isDirectory)) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      event.target.dispatchEvent(new DragEvent("dragleave", { bubbles: true }));
      const found = (await Promise.all(entries.map(within))).flat();
      const input = zone.querySelector("input[type=file]");
      if (!input || !found.length) return;
      const list = new DataTransfer();
      for (const file of found) list.items.add(file);
      input.files = list.files;
      input.dispatchEvent(new Event("change", { bubbles: true }));
    },
    true,
  );
})();
