"""Check the milestones of a file, part by part; a check that cannot be made is gray with its reason."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from core.interpret.any_module.kept_states import random_states_kept
from core.storage.error_messages import shown
from core.teaching.doctor.black_box import NotCheckableError
from core.teaching.doctor.finding import Finding, not_checked
from core.teaching.milestones.arguments import Sizes, WrongOutputError, build, parameters_of
from core.teaching.milestones.attention import AttentionChecks
from core.teaching.milestones.feed_forward import FeedForwardChecks
from core.teaching.milestones.head_calls import KINDS
from core.teaching.milestones.heads import HeadChecks
from core.teaching.milestones.layers import LayerChecks
from core.teaching.milestones.mask_functions import check_causal_mask, check_consistency, check_padding_mask
from core.teaching.milestones.names import OPTIONAL, PartName, looked_for
from core.teaching.milestones.own_file import OwnFile
from core.teaching.milestones.positions import PositionChecks, check_embedding
from core.teaching.milestones.table import Milestone
from core.teaching.milestones.whole import CONTRACT, ModelChecks

Check = tuple[str, Callable[[], Finding]]


@dataclass
class PartResult:
    """What was found out about one part of a file.

    Attributes:
        part: which.
        found_as: its name in the file; "" if the file lacks it.
        conventions: what was found out about its calls, in words.
        findings: in the order of the checks; a part that is missing has one, gray.
    """

    part: PartName
    found_as: str
    conventions: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True)
class MilestoneResult:
    """The results of a milestone's parts."""

    milestone: Milestone
    parts: tuple[PartResult, ...]

    @property
    def ok(self) -> bool:
        """Whether no check failed; warnings, missing parts and checks that were not made do not count."""
        return all(each.light != "red" for part in self.parts for each in part.findings)

    def as_data(self) -> dict[str, Any]:
        """Return the results as plain data for JSON."""
        return self.milestone.as_data() | {"ok": self.ok, "parts": [asdict(part) for part in self.parts]}


class MilestoneChecker:
    """Checks the parts of a file.

    Attributes:
        file: the reader's, or the lab's own modules.
    """

    def __init__(self, file: OwnFile) -> None:
        self.file = file
        self._attention: AttentionChecks | None = None

    def check(self, milestone: Milestone) -> MilestoneResult:
        """Check one milestone; the random generators are as before afterwards."""
        return MilestoneResult(milestone, tuple(self._check_part(part) for part in milestone.parts))

    def _check_part(self, part: PartName) -> PartResult:
        if part not in self.file.parts:
            contract = f". {CONTRACT}" if part == "model" else ""
            missing = Finding("found", "gray", f"Not in the file; looked for {looked_for(part)}{contract}.")
            return PartResult(part, "", findings=[missing])
        result = PartResult(part, self.file.found_as.get(part, self.file.parts[part].__name__))
        with random_states_kept([]):
            torch.manual_seed(0)
            try:
                result.findings.extend(self._findings(part, result.conventions))
            except Exception as error:  # noqa: BLE001 - the reader's code may raise anything
                result.findings.append(self._raised("call", error))
        return result

    def _findings(self, part: PartName, said: list[str]) -> Iterator[Finding]:
        what = self.file.parts[part]
        match part:
            case "attention":
                self._attention = AttentionChecks(what)
                yield from self._made(self._attention.all())
                said += self._attention.conventions
            case "causal_mask":
                yield from self._made([("causal mask", lambda: check_causal_mask(what, self._attention))])
            case "padding_mask":
                yield from self._made([("padding mask", lambda: check_padding_mask(what, self._attention))])
            case "heads":
                heads = HeadChecks(what)
                yield from self._made(heads.all())
                said += heads.conventions
                if self._attention is not None:
                    yield check_consistency("masks of both", self._attention.mask, heads.mask)
            case "positions":
                positions = PositionChecks(what)
                yield from self._made(positions.all())
                said += positions.conventions
            case "embedding":
                yield from self._made([("embedding", lambda: check_embedding(what))])
            case "feed_forward":
                network = FeedForwardChecks(what)
                yield from self._made(network.all())
                said += network.conventions
            case "encoder_layer" | "decoder_layer":
                layer = LayerChecks(what, self._builders(), is_decoder=part == "decoder_layer")
                yield from self._made(layer.all())
                said += layer.conventions
            case _:
                others: dict[str, Any] = {each: self.file.parts[each] for each in OPTIONAL if self._takes(each)}
                yield from ModelChecks(what, others).findings()

    def _takes(self, part: PartName) -> bool:
        """Whether the file has a function that can be called with the arguments that it is passed."""
        if part not in self.file.parts:
            return False
        parameters = parameters_of(self.file.parts[part]).values()
        needed = sum(each.default is each.empty for each in parameters)
        return needed <= OPTIONAL[part] <= len(parameters)

    def _builders(self) -> dict[str, Callable[[], Any]]:
        """Return functions that build attention and feed-forward network, for layers that are passed them."""
        kinds = {"heads": KINDS, "feed_forward": ("d_ff", "d_model")}
        return {
            part: lambda part=part, kinds=kinds: build(self.file.parts[part], Sizes(), kinds)  # type: ignore[misc]
            for part, kinds in kinds.items()
            if part in self.file.parts
        }

    def _made(self, checks: list[Check]) -> Iterator[Finding]:
        """Make checks; one that the reader's code does not allow is gray, and one in which it fails is red."""
        for name, check in checks:
            try:
                yield check()
            except Exception as error:  # noqa: BLE001 - the reader's code may raise anything
                yield self._raised(name, error)

    def _raised(self, name: str, error: Exception) -> Finding:
        if isinstance(error, NotCheckableError):
            return not_checked(name, str(error))
        if isinstance(error, NotImplementedError):
            return not_checked(name, "it raises NotImplementedError.")
        if isinstance(error, WrongOutputError):
            return Finding(name, "red", str(error))
        message = " ".join(shown(error).split())
        return Finding(name, "red", f"{message[:300]}{self.file.line_of(error)}.")
