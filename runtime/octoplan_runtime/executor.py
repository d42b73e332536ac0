"""`PipelineExecutor`: one rank's part of a pipeline in a training loop of the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from octoplan_runtime.agreement import require_layer_count, require_same_plan, require_world_size
from octoplan_runtime.errors import PipelineError, one_line
from octoplan_runtime.forward import ForwardMode
from octoplan_runtime.interpreter import Interpreter, LossFunction, StepState
from octoplan_runtime.mailbox import Mailbox
from octoplan_runtime.microbatches import Batch, MicrobatchWeight, join_values, loss_shares, split_batch
from octoplan_runtime.progress import OpTimes, Progress
from octoplan_runtime.replicas import FsdpReplica, Wrap, load_whole, replica_of
from octoplan_runtime.stage_graph import StageGraph
from octoplan_runtime.stage_module import Layers, StageModule, Values, as_values
from octoplan_runtime.subgroups import Subgroups
from octoplan_runtime.tensor_specs import TensorSpec, agree
from octoplan_runtime.tied import TiedNames, TiedParameters, unique_parameters
from octoplan_runtime.transport import Transport
from octoplan_schemas import InputError, OpWord, Plan, parse_word, require_valid, stage_edges

if TYPE_CHECKING:
    from octoplan_runtime.cuda_times import CudaClock


class PipelineExecutor:
    """Trains this rank's layers of a model by a plan, together with the other ranks of a process group.

    Parameters
    ----------
    plan:
        The plan; refused unless complete, ordered and free of deadlock.
    layers:
        A function from layer index to module, asked only for this rank's layers, or the list of all layers.
        A layer takes the output tensors of the layer before it, then those of each skip edge that ends there.
    loss_function:
        Takes the last layer's output (a tuple if it gives several tensors) and the targets of one microbatch.
    group:
        Process group with one process per rank of the plan; None for the default group.
    skips:
        Layer indices ``(source, destination)`` of the model's skip edges.
    tied:
        Groups of parameters, ``layers.INDEX.NAME``, that are one and the same: a single copy on a rank; copies on
        several ranks start from the lowest rank's values, and `step` sums their gradients.
    mode:
        Mixed precision and reproducible dropout.
    wrap:
        Called with each stage's module once it is built; what it returns is called in its place, such as
        ``DistributedDataParallel(stage, process_group=...)`` or ``fully_shard(stage, mesh=...)``, whose gradients
        `step` reduces once, after the last backward.
    microbatch_weight:
        What a microbatch counts in the step's loss, given its targets, such as its number of tokens; None counts
        all alike.
    device:
        Where the layers are and received tensors go; by default where this rank's parameters are.
    labelled:
        Debugging: every message is preceded by what it is, and checked on arrival.
    progress:
        Told of every op as it begins; for a watchdog.

    Attributes
    ----------
    modules:
        This rank's stage modules, by stage.
    times:
        Start and end of every op of the last step.
    step_number:
        Number of steps done. Dropout depends on it: set it when training resumes from a checkpoint.

    Raises
    ------
    InputError
        If the plan is not valid, differs between ranks, or the group has another number of ranks.
    """

    def __init__(
        self,
        plan: Plan,
        layers: Layers,
        loss_function: LossFunction,
        *,
        group: dist.ProcessGroup | None = None,
        skips: Iterable[tuple[int, int]] = (),
        tied: Iterable[TiedNames] = (),
        mode: ForwardMode | None = None,
        wrap: Wrap | None = None,
        microbatch_weight: MicrobatchWeight | None = None,
        device: torch.device | None = None,
        labelled: bool = False,
        progress: Progress | None = None,
    ) -> None:
        skips = list(skips)
        require_valid(plan)
        require_valid(plan, stage_edges([stage.layers for stage in plan.stages], skips))
        require_world_size(plan, group)
        require_layer_count(plan, layers)
        self.plan = plan
        self.rank = dist.get_rank(group)
        self.step_number = 0
        self.progress = progress or Progress()
        self._graph = StageGraph.of(plan, skips)
        self.modules = {stage.id: self._build(stage.id, layers) for stage in plan.stages_of(self.rank)}
        self._program = [parse_word(word) for word in plan.programs[self.rank]]
        self._loss_function = loss_function
        self._group = group
        self._ranks = [stage.rank for stage in plan.stages]
        self._device = device or _device_of(self.modules)
        self.times, self._cuda_clock = _times(len(self._program), self._device)
        self._mode = mode or ForwardMode()
        self._microbatch_weight = microbatch_weight
        self._labelled = labelled
        self.progress.enter("the comparison of plans")
        require_same_plan(plan, group, self._device)
        layer_ranks = [stage.rank for stage in plan.stages for _ in range(*stage.layers)]
        tied = list(tied)
        self._subgroups = Subgroups(group, self._device)
        self._tied = TiedParameters(tied, self.modules.values(), layer_ranks, self.rank, self._subgroups)
        self.progress.enter("the wrapping of stages")
        self._replicas = {stage: replica_of(module, wrap) for stage, module in self.modules.items()}
        if tied and any(isinstance(replica, FsdpReplica) for replica in self._replicas.values()):
            raise InputError(
                "tied: parameters that fully_shard has cut up cannot be tied; use DDP, or untie them"
            )
        self._transport: Transport | None = None
        self._interpreter: Interpreter | None = None
        self._input_specs: tuple[TensorSpec, ...] | None = None

    def step(self, inputs: Batch | None = None, targets: Batch | None = None) -> torch.Tensor:
        """Run forward and backward of one batch; gradients are added to ``.grad``.

        Parameters
        ----------
        inputs:
            The whole batch, a tensor or a tuple of tensors, cut along dimension 0 into equal microbatches;
            needed where the first stage is, ignored elsewhere.
        targets:
            Likewise for the loss; needed where the last stage is.

        Returns
        -------
        torch.Tensor
            The mean of the microbatches' losses, auxiliary ones included, in float64, on every rank. Gradients are
            those of this mean.

        Raises
        ------
        InputError
            If the batch cannot be cut, or its shape differs from the first step's.
        PipelineError
            If an op fails; it names the rank and the op.
        """
        state = self._begin(inputs, targets, training=True)
        with self._errors_named():
            interpreter = self._ready(state)
            for replica in self._replicas.values():
                replica.begin()
            with self._tied.summed():
                interpreter.run(state)
                self.progress.enter("the sum of tied gradients")
            self.progress.enter("the reduction of gradients")
            for replica in self._replicas.values():
                replica.reduce()
            self.step_number += 1
            return self._mean_loss(state)

    def eval(self, inputs: Batch | None = None) -> torch.Tensor | Values | None:
        """Run the forward alone, without gradients and with the layers in evaluation mode.

        Returns
        -------
        torch.Tensor or tuple of torch.Tensor or None
            The last layer's output, microbatches joined along dimension 0; None where the last stage is not.
        """
        state = self._begin(inputs, None, training=False)
        with self._errors_named(), torch.no_grad(), _evaluation_mode(self.modules.values()):
            self._ready(state).run(state)
        if not self._holds_last:
            return None
        return join_values([state.outputs[m] for m in range(state.num_microbatches)])

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield this rank's parameters, each once, named ``layers.INDEX.NAME`` by the layer's index in the whole
        model."""
        yield from unique_parameters(self.modules)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yield this rank's parameters."""
        for _, parameter in self.named_parameters():
            yield parameter

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's state under global names: it loads under any other plan of the model."""
        return {
            name: value for module in self.modules.values() for name, value in module.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what this rank holds; other names are passed over, missing ones are an `InputError`."""
        for stage, module in self.modules.items():
            own = module.state_dict().keys()
            missing = sorted(own - state.keys())
            if missing:
                raise InputError(f"the state has no {missing[0]!r}, which stage {stage} needs")
            load_whole(module, {name: state[name] for name in own})

    @property
    def receive_buffer_bytes(self) -> int:
        """Bytes of all buffers for received tensors on this rank: the most that were in use at once so far."""
        return 0 if self._transport is None else self._transport.buffers.num_bytes

    def _build(self, stage: int, layers: Layers) -> StageModule:
        return StageModule(layers, self._graph.bounds[stage], self._graph.feeds, self._graph.exports(stage))

    @property
    def _holds_last(self) -> bool:
        return len(self._ranks) - 1 in self.modules

    def _begin(self, inputs: Batch | None, targets: Batch | None, *, training: bool) -> StepState:
        self.progress.enter("the start of the step")
        num_microbatches = self.plan.job.microbatches
        state = StepState(self.step_number, num_microbatches, (), None, training)
        if 0 in self.modules:
            state.inputs = [as_values(value) for value in split_batch(inputs, num_microbatches, "inputs")]
            self._require_same_shapes(state)
        if self._holds_last and training:
            state.targets = split_batch(targets, num_microbatches, "targets")
            state.shares = loss_shares(state.targets, self._microbatch_weight)
        return state

    def _require_same_shapes(self, state: StepState) -> None:
        found = tuple(TensorSpec.of(value) for value in state.inputs[0])
        if self._input_specs not in (None, found):
            raise InputError(
                f"a microbatch of inputs was {self._input_specs} in the first step and is {found} now; "
                "shapes are agreed once, so keep them, or build a new PipelineExecutor"
            )
        self._input_specs = found

    def _ready(self, state: StepState) -> Interpreter:
        """Return the interpreter; in the first step the ranks agree on shapes before it is built."""
        if self._interpreter is None:
            self.progress.enter("the agreement on shapes")
            specs = agree(
                self._graph,
                self._ranks,
                self.modules,
                self._input_specs,
                self._group,
                self._device,
                self._mode,
            )
            told = (self.progress, self.times)
            self._transport = self._make_transport()
            mailbox = Mailbox(
                self._graph, self._ranks, specs, self._transport, *told, labelled=self._labelled
            )
            self._interpreter = Interpreter(
                self._program,
                self._graph,
                self._replicas,
                self._loss_function,
                mailbox,
                self._device,
                self._mode,
                self._hold,
                *told,
            )
        return self._interpreter

    def _make_transport(self) -> Transport:
        if self._cuda_clock is None:
            return Transport(self._group, self._device)
        from octoplan_runtime.transport_cuda import CudaTransport

        return CudaTransport(self.plan, self._subgroups, self._group, self._device, self._cuda_clock)

    def _hold(self, word: OpWord, start_s: float) -> None:
        """Do nothing more at the end of an op; emulated devices do."""

    def _mean_loss(self, state: StepState) -> torch.Tensor:
        """Sum over ranks what each contributes: the losses where the last stage is, auxiliary ones anywhere."""
        self.progress.enter("the sharing of the loss")
        mean = torch.zeros((), dtype=torch.float64, device=self._device)
        if self._holds_last:
            losses = torch.stack([state.losses[m] for m in range(state.num_microbatches)]).to(mean)
            mean += (losses * torch.tensor(state.shares, dtype=mean.dtype).to(mean)).sum()
        if state.auxiliary_loss is not None:
            mean += state.auxiliary_loss / state.num_microbatches
        dist.all_reduce(mean, group=self._group)
        self.progress.enter("the end of the step")
        return mean

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Say which rank and which op an error comes from; bad input stays as it is."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            raise PipelineError(self.rank, self.progress.word, one_line(error)) from error


def _times(num_words: int, device: torch.device) -> tuple[OpTimes, CudaClock | None]:
    """Return what notes the times of ops, and the clock that it has on a GPU."""
    if device.type != "cuda":
        return OpTimes(num_words), None
    from octoplan_runtime.cuda_times import CudaClock, CudaOpTimes

    clock = CudaClock(device)
    return CudaOpTimes(num_words, clock), clock


def _device_of(modules: Mapping[int, StageModule]) -> torch.device:
    parameters = (parameter for module in modules.values() for parameter in module.parameters())
    return next((parameter.device for parameter in parameters), torch.device("cpu"))


@contextmanager
def _evaluation_mode(stages: Iterable[StageModule]) -> Iterator[None]:
    """Put every module into evaluation mode, and back into the mode that it had."""
    modes = [(module, module.training) for stage in stages for module in stage.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes:
            module.training = mode
