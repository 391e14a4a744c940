// The connection: one stream of events, tried again for as long as the page is open.

const SILENCE_MS = 25000;
const LONGEST_RETRY_MS = 10000;
const HIDDEN_MS = 5000;

/** Keeps a stream open while the page is seen. */
export class Stream {
  /** @param onMessage Told every message. @param onStatus Told "connecting", "live", "lost" or "refused". */
  constructor(url, onMessage, onStatus) {
    Object.assign(this, { url, onMessage, onStatus });
    this.nRetries = 0;
    document.addEventListener("visibilitychange", () => this.seen());
    this.open();
  }

  open() {
    this.close();
    if (this.nRetries === 0) this.onStatus("connecting");
    const source = new EventSource(this.url);
    this.source = source;
    source.addEventListener("state", (event) => {
      this.nRetries = 0;
      this.onStatus("live");
      this.watch();
      this.onMessage(JSON.parse(event.data));
    });
    source.addEventListener("beat", () => this.watch());
    source.addEventListener("error", () =>
      this.lost(source.readyState === EventSource.CLOSED ? "refused" : "lost"),
    );
    this.watch();
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.watchdog);
    this.source?.close();
    this.source = null;
  }

  lost(status) {
    this.close();
    this.nRetries += 1;
    this.onStatus(status);
    this.timer = setTimeout(
      () => this.open(),
      Math.min(LONGEST_RETRY_MS, 500 * 2 ** Math.min(this.nRetries, 8)),
    );
  }

  /** A connection may die without a word: silence counts as lost. */
  watch() {
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => this.lost("lost"), SILENCE_MS);
  }

  /** A hidden page holds no connection: browsers allow six a host, over all tabs. */
  seen() {
    clearTimeout(this.hidden);
    if (document.hidden) this.hidden = setTimeout(() => this.close(), HIDDEN_MS);
    else if (!this.source) this.open();
  }
}
