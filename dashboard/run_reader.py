"""Reads the folder of a run, a little at a time, into the sections that the page shows.

    run         what it is, how far it has come, what is wrong with its files
    zones       names and machines, in the order of the configuration
    zone:NAME   the newest view of a zone
    rounds      the table of rounds
    curves      learning curves
    events      what happened to zones
    comparison  with kube-default
    files       the report and its plots

A file that is missing, half-written or not ours is shown as far as it is whole: what is wrong with
it stands in `run`, and nothing else is lost. Nothing is ever written to the folder.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dashboard import comparison
from dashboard.board import encode
from dashboard.facts import Facts
from dashboard.following import FileWatch, LineFollower, Stamp, text
from dashboard.rounds import EventBook, RoundBook, Validation
from dashboard.zone_views import ZoneViews, shown_view
from marl_sched.config import Experiment, load_config
from marl_sched.errors import MarlSchedError

_MAX_CONFIG = 4 << 20
_MAX_EVALUATION = 16 << 20
_PLOT = re.compile(r"[a-z0-9][a-z0-9_-]{0,60}\.png")
_MAX_PLOTS = 12
_MAX_PROBLEMS = 20
REPORT = "report.md"


class RunReader:
    """Follows one run."""

    def __init__(self, folder: Path) -> None:
        """Follow a folder, which need not exist yet."""
        self.folder = folder
        self.experiment: Experiment | None = None
        self.facts = Facts()
        self.baseline: dict[str, Any] = {"state": "waiting"}
        """What is known of kube-default: see `comparison.from_validation`."""
        self.last_change: float | None = None
        self._problems: dict[str, str] = {}
        self._sent: dict[str, bytes] = {}
        self._books = RoundBook()
        self._events = EventBook()
        self._views = ZoneViews(folder / "live")
        self._config = FileWatch(folder / "config.yaml", _MAX_CONFIG)
        self._good_config: bytes | None = None
        self._evaluation = FileWatch(folder / "evaluation.json", _MAX_EVALUATION)
        self._measured: dict[str, Any] | None = None
        book, events = self._books, self._events
        self._lines = (
            LineFollower(folder / "metrics.jsonl", book.take_metrics, book.reset_metrics),
            LineFollower(folder / "timing.jsonl", book.take_timing, book.reset_timing),
            LineFollower(folder / "federation" / "events.jsonl", events.take, events.reset),
        )

    @property
    def config_text(self) -> bytes | None:
        """The configuration as it stands in the file; None while there is no good one."""
        return self._good_config

    @property
    def has_evaluation(self) -> bool:
        """Whether there are measured ratios to kube-default."""
        return self._measured is not None

    def poll(self) -> dict[str, bytes | None]:
        """Read what is new; return the sections that are other than before, None: gone."""
        self._try("config.yaml", self._read_config)
        self._try("evaluation.json", self._read_evaluation)
        grown = False
        for follower in self._lines:
            # A file that could not be read, and now can, has no news to tell.
            self._problems.pop(follower.path.name, None)
            grown |= bool(self._try(follower.path.name, follower.poll))
        changed: set[str] = self._try("live", self._views.poll) or set()
        self._note_change()
        return self._changes(self._sections(changed, grown))

    def _try(self, name: str, read: Callable[[], Any]) -> Any:
        """Read one file; what goes wrong is shown until there is something new in it."""
        try:
            found = read()
        except OSError as error:
            self._problems[name] = f"cannot be read: {error.strerror or error}"
        except MarlSchedError as error:
            self._problems[name] = str(error)
        else:
            if found:
                self._problems.pop(name, None)
            return found
        return None

    def _read_config(self) -> bool:
        if not self._config.poll():
            return False
        self._good_config, self.experiment, self.facts = None, None, Facts()
        if self._config.content is not None:
            self.facts = Facts.of(self._config.content)
            self.experiment = load_config(self._config.path)
            self._good_config = self._config.content
        return True

    def _read_evaluation(self) -> bool:
        if not self._evaluation.poll():
            return False
        content = self._evaluation.content
        self._measured = None if content is None else comparison.from_evaluation(content)
        return True

    def _note_change(self) -> None:
        paths = [follower.path for follower in self._lines]
        paths += [self._config.path, self._evaluation.path]
        stamps = [stamp for path in paths if (stamp := _stamp(path)) is not None]
        times = [stamp.changed_ns / 1e9 for stamp in stamps]
        times += self._views.came_s.values()
        self.last_change = round(max(times), 2) if times else None

    def _sections(self, changed_zones: set[str], has_lines: bool) -> dict[str, Any]:
        """Return the sections that may be other than before."""
        names = self._zone_names()
        sections: dict[str, Any] = {
            "run": self._run(),
            "zones": self._zones(names),
            "comparison": self._comparison(),
            "files": self._files(),
        }
        if has_lines or "rounds" not in self._sent:
            sections["rounds"] = self._books.table()
            sections["curves"] = self._books.curves()
            sections["events"] = self._events.newest()
        for zone in names:
            view = self._views.newest.get(zone)
            key = f"zone:{zone}"
            if view is not None and (zone in changed_zones or key not in self._sent):
                sections[key] = shown_view(view, self._views.came_s[zone])
        return sections

    def _changes(self, sections: dict[str, Any]) -> dict[str, bytes | None]:
        encoded = {name: encode(content) for name, content in sections.items()}
        new = {name: part for name, part in encoded.items() if self._sent.get(name) != part}
        shown = {f"zone:{zone}" for zone in self._zone_names() if zone in self._views.newest}
        gone = [name for name in self._sent if name.startswith("zone:") and name not in shown]
        self._sent |= new
        for name in gone:
            del self._sent[name]
        return new | dict.fromkeys(gone)

    def _zone_names(self) -> list[str]:
        """Zones of the configuration; while it cannot be read, those that are met elsewhere."""
        return list(self.facts.machines) or sorted({*self._views.newest, *self._books.zones})

    def _run(self) -> dict[str, Any]:
        state, detail = self._state()
        problems = dict(self._problems)
        problems |= {f"live/{zone}.json": what for zone, what in self._views.problems.items()}
        for follower in self._lines:
            if follower.n_broken:
                what = f"{follower.n_broken} broken lines are left out"
                problems[follower.path.name] = what
        return {
            "folder": str(self.folder),
            "name": self.facts.name or self.folder.name,
            "seed": self.facts.seed,
            "state": state,
            "detail": detail,
            "round": self._books.last,
            "n_rounds": self.facts.n_rounds,
            "problems": [
                {"file": text(name, 100), "problem": text(what)}
                for name, what in sorted(problems.items())[:_MAX_PROBLEMS]
            ],
        }

    def _state(self) -> tuple[str, str]:
        """Return waiting, running, finished or failed, and why it failed."""
        end = self._events.end
        if self.last_change is None:
            return "waiting", ""
        if end is not None and end["outcome"] in ("failed", "broken"):
            return "failed", end["error"]
        if self._is_finished():
            return "finished", ""
        return "running", ""

    def _is_finished(self) -> bool:
        if self._events.end is not None or self._evaluation.content is not None:
            return True
        if self.facts.n_rounds is None or self._books.last < self.facts.n_rounds:
            return False
        validated = {validation.round_number for validation in self._books.validations}
        return self.facts.n_rounds in validated or self.facts.n_validation_episodes == 0

    def _zones(self, names: list[str]) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "n_machines": self.facts.machines.get(name),
                "figures": self._books.zones.get(name),
            }
            for name in names
        ]

    def _best(self) -> Validation | None:
        return self._books.best(len(self._zone_names()))

    def _comparison(self) -> dict[str, Any]:
        rule = self.baseline.get("metrics", {}).get("objective")
        episodes = self.facts.n_validation_episodes or 0
        shown = self._measured
        if shown is None:
            shown = comparison.from_validation(self._best(), self.baseline, episodes)
        return shown | {"validation_objective": rule}

    def _files(self) -> dict[str, Any]:
        try:
            names = sorted(p.name for p in self.folder.iterdir() if _PLOT.fullmatch(p.name))
            has_report = (self.folder / REPORT).is_file()
        except OSError:
            return {"report": False, "plots": []}
        return {"report": has_report, "plots": names[:_MAX_PLOTS]}


def is_plot(name: str) -> bool:
    """Return whether a file's name is one that a plot of a run may have."""
    return _PLOT.fullmatch(name) is not None


def _stamp(path: Path) -> Stamp | None:
    try:
        return Stamp.of(path)
    except OSError:
        return None
