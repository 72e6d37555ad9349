"""A KV connector whose prompts' caches are always elsewhere: the scheduler waits for them as for NIXL's.

Only the scheduler's side is used. What the worker would do, `record.Instance` does by the clock.
"""

from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)


@dataclass
class Loads(KVConnectorMetadata):
    """Whose cache starts to be loaded when the step is launched."""

    loads: list[str] = field(default_factory=list)


class Elsewhere(KVConnectorBase_V1, SupportsHMA):
    """Whatever of a prompt is not here is asked for, and arrives between steps."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.loads: list[str] = []
        self.asked: set[str] = set()

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """The rest of the prompt, once."""
        missing = request.num_prompt_tokens - num_computed_tokens
        return (0, False) if request.request_id in self.asked or missing <= 0 else (missing, True)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Blocks are reserved: the load may start."""
        if num_external_tokens:
            self.loads.append(request.request_id)
            self.asked.add(request.request_id)

    def build_connector_meta(self, scheduler_output: Any) -> Loads:
        """What starts with this step."""
        starting, self.loads = self.loads, []
        return Loads(starting)

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        """Blocks are free at once."""
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        """Blocks are free at once."""
        return False, None

    def start_load_kv(self, forward_context: Any, **named: Any) -> None:
        """The worker's, unused."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """The worker's, unused."""

    def save_kv_layer(self, *given: Any, **named: Any) -> None:
        """The worker's, unused."""

    def wait_for_save(self) -> None:
        """The worker's, unused."""
