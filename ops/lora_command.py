"""`soloist lora inspect|merge|gate`: what one does with an adapter before it is served."""

import argparse
import sys
from pathlib import Path

from ..lora.errors import AdapterError, StrengthError
from .model_errors import ModelError

REFUSED, BAD_ADAPTER, BAD_PROMPTS = 1, 65, 66


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `lora` to the root command; `run` is left in the parsed arguments. Imports no MLX."""
    parser = subparsers.add_parser("lora", help="inspect, merge and gate adapters", description=__doc__)
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    inspect = actions.add_parser("inspect", help="format, rank, targets, and at what strength an adapter acts")
    inspect.add_argument("path", metavar="PATH", help="an adapter's folder or Hugging Face id")
    inspect.add_argument("--model", help="match it against this model, and measure its strength if merged into it")
    inspect.add_argument("--json", action="store_true", help="print JSON instead of a table")
    merge = actions.add_parser("merge", help="write a model folder with the adapter in its weights")
    _base_and_adapter(merge)
    merge.add_argument("out", metavar="OUT", type=Path, help="the folder to be made")
    merge.add_argument(
        "--keep-dense",
        metavar="auto|MODULE,...",
        default="never",
        help="leave these modules unquantised; auto: those that would miss the threshold",
    )
    merge.add_argument(
        "--threshold",
        type=_share,
        default=0.05,
        help="how far a module's measured strength may be from the trained one (default: 0.05)",
    )
    gate = actions.add_parser("gate", help="exit 0 if the adapter answers held-out prompts better than the base")
    _base_and_adapter(gate)
    gate.add_argument("--prompts", required=True, metavar="FILE", type=Path, help="JSON lines with reference answers")
    gate.add_argument(
        "--threshold",
        type=_share,
        default=0.70,
        help="share of prompts whose reference answer must become likelier (default: 0.70)",
    )
    gate.add_argument("--receipt", metavar="FILE", type=Path, help="write the JSON receipt here (default: stdout)")


def _base_and_adapter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", metavar="BASE", help="the model, as for `serve`")
    parser.add_argument("adapter", metavar="ADAPTER", help="an adapter's folder or Hugging Face id")


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def run(args: argparse.Namespace) -> int:
    """0: done, or the gate is passed; 1: refused for its strength, or the gate is failed; others: it could not be
    tried."""
    from .lora_prompts import PromptsError

    try:
        return _act(args)
    except StrengthError as error:
        return _fail(f"refused: {error.message}", REFUSED)
    except AdapterError as error:
        return _fail(error.message, BAD_ADAPTER)
    except PromptsError as error:
        return _fail(str(error), BAD_PROMPTS)
    except ModelError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing half-made was kept", 130)


def _act(args: argparse.Namespace) -> int:
    if args.action == "inspect":
        from .lora_inspect import inspect_adapter

        return inspect_adapter(args.path, args.model, as_json=args.json)
    if args.action == "merge":
        from .lora_merge import merge_to_folder

        keep = args.keep_dense if args.keep_dense in ("never", "auto") else tuple(args.keep_dense.split(","))
        return merge_to_folder(args.base, args.adapter, args.out, keep_dense=keep, threshold=args.threshold)
    from .lora_gate import gate

    return gate(args.base, args.adapter, args.prompts, threshold=args.threshold, receipt_file=args.receipt)


def _fail(message: str, code: int) -> int:
    print(f"soloist: {message}", file=sys.stderr)
    return code
