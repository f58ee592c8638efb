"""What recorded conversations cost, and what they would have cost under a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.lazy_names import export_on_demand

if TYPE_CHECKING:
    from trimtab.replay.billing import CacheRules as CacheRules
    from trimtab.replay.billing import InputBill as InputBill
    from trimtab.replay.billing import ProviderPricing as ProviderPricing
    from trimtab.replay.billing import get_provider_pricing as get_provider_pricing
    from trimtab.replay.needs import NeedCounts as NeedCounts
    from trimtab.replay.readers import read_recordings as read_recordings
    from trimtab.replay.readers.json_files import OnSkipped as OnSkipped
    from trimtab.replay.readers.json_files import UnreadableRecording as UnreadableRecording
    from trimtab.replay.runner import ConversationRun as ConversationRun
    from trimtab.replay.runner import OnReplayProgress as OnReplayProgress
    from trimtab.replay.runner import ReplayedCall as ReplayedCall
    from trimtab.replay.runner import ReplaySetup as ReplaySetup
    from trimtab.replay.runner import replay_all as replay_all
    from trimtab.replay.savings import PolicySaving as PolicySaving
    from trimtab.replay.savings import ReplayStudy as ReplayStudy
    from trimtab.replay.savings import Savings as Savings
    from trimtab.replay.savings import compute_savings as compute_savings
    from trimtab.replay.selection import RecordedCall as RecordedCall
    from trimtab.replay.selection import RecordedConversation as RecordedConversation
    from trimtab.replay.selection import select_conversations as select_conversations

_HOMES = {
    "CacheRules": "replay.billing",
    "ProviderPricing": "replay.billing",
    "InputBill": "replay.billing",
    "ReplayStudy": "replay.savings",
    "PolicySaving": "replay.savings",
    "Savings": "replay.savings",
    "ConversationRun": "replay.runner",
    "ReplayedCall": "replay.runner",
    "NeedCounts": "replay.needs",
    "OnReplayProgress": "replay.runner",
    "OnSkipped": "replay.readers.json_files",
    "RecordedCall": "replay.selection",
    "RecordedConversation": "replay.selection",
    "ReplaySetup": "replay.runner",
    "UnreadableRecording": "replay.readers.json_files",
    "compute_savings": "replay.savings",
    "get_provider_pricing": "replay.billing",
    "read_recordings": "replay.readers",
    "replay_all": "replay.runner",
    "select_conversations": "replay.selection",
}

__all__, __getattr__ = export_on_demand(__name__, _HOMES)
