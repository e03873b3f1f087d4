// Data that the stream does not carry: asked for again as snapshots come, while somebody looks, and
// never twice at once.

// `load(signal)` is given up when the view ends or is refreshed; `fail(error)` hears why it failed; everyMs()
// is how long to wait between two.
export function poller(load, fail, everyMs = () => 2000) {
  let busy = false,
    last = 0,
    ended = false,
    controller = null;

  async function run() {
    controller?.abort();
    const own = (controller = new AbortController());
    busy = true;
    try {
      await load(own.signal);
    } catch (error) {
      if (!own.signal.aborted) fail(error);
    }
    if (own !== controller) return;
    busy = false;
    last = Date.now();
  }

  return {
    now: run,
    tick() {
      if (!ended && !busy && !document.hidden && Date.now() - last >= everyMs()) run();
    },
    end() {
      ended = true;
      controller?.abort();
    },
  };
}
