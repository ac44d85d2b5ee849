"""`soloist bench`: how fast is this server, against the bare loop and against other servers, on this machine?"""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from .bench_child import ChildFault
from .bench_foreign import measure_foreign
from .bench_plot import write_plot
from .bench_report import print_tables, write_json
from .bench_run import SCENARIOS, Wish, carry_out
from .bench_servers import ServerFault
from .bench_sizes import FULL, LEVELS, QUICK
from .bench_soak import soak
from .bench_stats import Figures
from .model_errors import ModelError
from .model_store import resolve
from .progress import shown

NAMES = list(dict.fromkeys(scenario.name for scenario in SCENARIOS))


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `bench` to the root command; `run` is left in the parsed arguments."""
    parser = subparsers.add_parser("bench", help="measure speed, alone and beside other servers", description=__doc__)
    parser.set_defaults(run=run)
    add = parser.add_argument
    add("--model", help="model to serve and to run bare, as for `serve` (default: demo, if nothing is attached)")
    add("--attach", action="append", default=[], metavar="[NAME=]URL",
        help="measure a running server instead of starting ours; ratios are about the first")  # fmt: skip
    add("--attach-key", metavar="KEY", help="bearer token for attached servers")
    add("--attach-model", metavar="MODEL", help="model name for attached servers (default: the first they list)")
    add("--vs", choices=["mlx-lm"], help="start this server too, on the same weights and BLAS")
    add("--only", action="append", default=[], choices=NAMES, metavar="SCENARIO",
        help="one of " + ", ".join(NAMES) + " (repeatable)")  # fmt: skip
    add("--quick", action="store_true", help="short measurements, one round: about a minute with the demo model")
    add("--rounds", type=_count, metavar="N", help="how often each server is measured, in turn (default: 3)")
    add("--levels", type=_levels, metavar="N,N", help="numbers of concurrent streams, out of 1,2,4,8,16 (default: all)")
    add("--seed", type=int, help="of the prompts; the same seed sends the same load (default: from the clock)")
    add("--server-arg", action="append", default=[], metavar="ARG", help="further argument for our daemon (repeatable)")
    add("--json", type=Path, metavar="FILE", help="write raw samples, medians and ratios")
    add("--plot", type=Path, metavar="FILE.svg", help="draw throughput and latency over concurrency")
    add(
        "--soak", action="store_true", help="instead: many mixed requests, many of them broken off; does memory settle?"
    )
    add(
        "--foreign",
        action="store_true",
        help="instead: twenty conversations; are there words of foreign scripts in them?",
    )
    add("--requests", type=_count, default=2000, metavar="N", help="how many requests --soak sends (default: 2000)")


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _levels(text: str) -> tuple[int, ...]:
    chosen = tuple(sorted(int(part) for part in text.split(",")))
    if not set(chosen) <= set(LEVELS):
        raise argparse.ArgumentTypeError(f"must be out of {', '.join(map(str, LEVELS))}")
    return chosen


def run(args: argparse.Namespace) -> int:
    """0: measured (or --soak settled); 1: --soak did not settle; otherwise the exit code of what went wrong."""
    signal.signal(signal.SIGTERM, _leave)  # so that what was started here is ended
    try:
        if args.foreign:
            return measure_foreign(_folder(args) or resolve("demo"), tuple(args.server_arg), args.json)
        if args.soak:
            return soak(_folder(args), args.requests, args.server_arg, args.json)
        return _bench(args)
    except ModelError as error:
        print(f"soloist: {error}", file=sys.stderr)
        return error.exit_code
    except (ServerFault, ChildFault) as error:
        print(f"soloist: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("soloist: interrupted", file=sys.stderr)
        return 130


def _leave(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _bench(args: argparse.Namespace) -> int:
    sizes = QUICK if args.quick else FULL
    if args.rounds:
        sizes = replace(sizes, rounds=args.rounds)
    if args.levels:
        sizes = replace(sizes, levels=args.levels, seeded_levels=args.levels)
    wish = Wish(
        sizes=sizes,
        seed=time.time_ns() % 1_000_000_007 if args.seed is None else args.seed,
        folder=_folder(args),
        attach=tuple(args.attach),
        attach_key=args.attach_key,
        attach_model=args.attach_model,
        vs_mlx_lm=args.vs is not None,
        only=tuple(args.only),
        arguments=tuple(args.server_arg),
    )
    run = carry_out(wish, _sayer())
    if args.json:
        write_json(run, args.json)
    if args.plot:
        write_plot(Figures(run.samples), sizes.levels, args.plot)
    print_tables(run)
    return 0


def _folder(args: argparse.Namespace) -> Path | None:
    """None: nothing was named, and what is measured needs no files of ours."""
    if args.model is None and (args.soak or (args.attach and args.vs is None)):
        return None
    with shown() as progress:
        return resolve(args.model or "demo", progress=progress)


def _sayer() -> Callable[[str], None]:
    began = time.monotonic()
    return lambda what: print(f"{time.monotonic() - began:6.1f} s  {what}", file=sys.stderr, flush=True)
