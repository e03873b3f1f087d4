// Data that is not in the stream of events: requested again as snapshots arrive, while the page is visible, one
// request at a time.

// `load(signal)` is aborted when the view ends or is refreshed; `fail(error)` is called when it failed; everyMs()
// is the least time between two requests.
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
