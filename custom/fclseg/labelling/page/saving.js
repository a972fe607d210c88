// Saves every change at once, one after the other. Nothing is shown as saved before it is on disk.
import * as api from "./api.js";

export class Saver {
  // tell(text, kind) shows the state; refused(error, retry) asks the person what to do.
  constructor(tell, refused) {
    Object.assign(this, { tell, refused, queue: Promise.resolve(), open: 0 });
    window.addEventListener("beforeunload", (event) => { if (this.open) event.preventDefault(); });
  }

  // `record` is the slice's record in its volume, updated in place. Resolves to the answer, or null if refused.
  save(volume, slice, state, seconds, plane) {
    this.open += 1;
    this.tell("saving …", "busy");
    const attempt = async () => {
      const record = volume.records[slice];
      try {
        const answer = await api.save(volume.index, slice, record, state, seconds, plane);
        Object.assign(record, answer.record);
        return answer;
      } catch (error) {
        if (!(error instanceof api.Changed) && error instanceof TypeError) { // the program is not running
          this.tell("not saved", "bad");
          await new Promise((resume) => setTimeout(resume, 2000));
          return attempt();
        }
        return this.refused(error, { volume, slice, state, seconds, plane });
      }
    };
    this.queue = this.queue.then(attempt).then((answer) => {
      this.open -= 1;
      if (answer && !this.open) this.tell("saved", "");
      return answer;
    });
    return this.queue;
  }

  // A volume with everything that was changed on this page, also while it was on its way.
  async volume(index) {
    for (;;) {
      const { queue } = this;
      await queue;
      const volume = await api.volume(index);
      if (queue === this.queue) return volume;
    }
  }
}

// Seconds of work on a slice: while the page is looked at, and no longer than a while after the last movement.
export class Stopwatch {
  constructor(patience = 20) {
    this.patience = patience;
    this.reset();
    for (const kind of ["pointermove", "pointerdown", "keydown", "wheel"]) {
      window.addEventListener(kind, () => this.touch(), { passive: true, capture: true });
    }
  }

  reset() { this.seconds = 0; this.last = performance.now(); }

  touch() {
    const now = performance.now();
    if (!document.hidden) this.seconds += Math.min(this.patience, (now - this.last) / 1000);
    this.last = now;
  }

  take() {
    this.touch();
    const { seconds } = this;
    this.seconds = 0;
    return seconds;
  }
}
