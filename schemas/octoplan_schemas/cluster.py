"""``octoplan.cluster/1``: devices (their position is the rank) and links (contract, section 2)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from octoplan_schemas.base import Document, NonNegative, Positive, StrictModel


class DeviceType(StrictModel):
    """Capacity and speed of one kind of device."""

    memory_bytes: Positive
    peak_flops: Positive
    memory_bandwidth: Positive
    op_overhead_s: NonNegative


class Device(StrictModel):
    """One device; its position in the list is its rank."""

    name: Annotated[str, Field(min_length=1)]
    type: Annotated[str, Field(min_length=1)]
    node: Annotated[str, Field(min_length=1)]


class Link(StrictModel):
    """Latency in seconds and bandwidth in bytes per second of one direction of a rank pair."""

    latency_s: NonNegative
    bandwidth: Positive


class PairLink(Link):
    """A link of one directed pair; both ends are given by rank or by device name."""

    from_device: Annotated[int | str, Field(alias="from")]
    to_device: Annotated[int | str, Field(alias="to")]


class Links(StrictModel):
    """Links inside a node, between nodes, and of single pairs (which override)."""

    intra_node: Link
    inter_node: Link
    pairs: tuple[PairLink, ...] = ()


class Cluster(Document):
    """The devices that a plan runs on."""

    FORMAT: ClassVar[str] = "octoplan.cluster/1"
    format: str = FORMAT
    name: Annotated[str, Field(min_length=1)]
    device_types: Annotated[dict[str, DeviceType], Field(min_length=1)]
    devices: Annotated[tuple[Device, ...], Field(min_length=1)]
    links: Links

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        names: set[str] = set()
        for index, device in enumerate(self.devices):
            if device.type not in self.device_types:
                known = ", ".join(sorted(self.device_types))
                raise ValueError(f"devices.{index}.type: {device.type!r} is not in device_types ({known})")
            if device.name in names:
                raise ValueError(f"devices.{index}.name: {device.name!r} occurs twice; names must be unique")
            names.add(device.name)
        for index, pair in enumerate(self.links.pairs):
            ends = {self._rank(pair.from_device, index, "from"), self._rank(pair.to_device, index, "to")}
            if len(ends) == 1:
                raise ValueError(f"links.pairs.{index}: from and to are the same device")
        return self

    def _rank(self, device: int | str, index: int, field: str) -> int:
        ranks = range(len(self.devices))
        if isinstance(device, int) and device in ranks:
            return device
        for rank in ranks:
            if self.devices[rank].name == device:
                return rank
        raise ValueError(f"links.pairs.{index}.{field}: {device!r} is neither a rank nor a device name")

    @property
    def num_ranks(self) -> int:
        """Number of devices."""
        return len(self.devices)

    def link_table(self) -> list[list[Link]]:
        """Return ``table[source][destination]``; the diagonal is never used."""
        table: list[list[Link]] = [
            [self.links.intra_node if a.node == b.node else self.links.inter_node for b in self.devices]
            for a in self.devices
        ]
        for index, pair in enumerate(self.links.pairs):
            source = self._rank(pair.from_device, index, "from")
            table[source][self._rank(pair.to_device, index, "to")] = pair
        return table
