"""What recorded conversations cost, and what they would have cost under a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.lazy_names import export_on_demand

if TYPE_CHECKING:
    from trimtab.replay.billing import CacheRules as CacheRules
    from trimtab.replay.billing import InputBill as InputBill
    from trimtab.replay.billing import ProviderPricing as ProviderPricing
    from trimtab.replay.billing import get_provider_pricing as get_provider_pricing
    from trimtab.replay.calls import ConversationRun as ConversationRun
    from trimtab.replay.calls import ReplayedCall as ReplayedCall
    from trimtab.replay.calls import ReplaySetup as ReplaySetup
    from trimtab.replay.client_settings import ClientSettings as ClientSettings
    from trimtab.replay.needs import NeedCounts as NeedCounts
    from trimtab.replay.readers import read_recordings as read_recordings
    from trimtab.replay.readers.json_files import OnSkipped as OnSkipped
    from trimtab.replay.readers.json_files import UnreadableRecording as UnreadableRecording
    from trimtab.replay.runner import OnReplayProgress as OnReplayProgress
    from trimtab.replay.runner import replay_all as replay_all
    from trimtab.replay.savings import Saving as Saving
    from trimtab.replay.savings import add_savings as add_savings
    from trimtab.replay.savings import compute_savings as compute_savings
    from trimtab.replay.selection import RecordedCall as RecordedCall
    from trimtab.replay.selection import RecordedConversation as RecordedConversation

_HOMES = {
    "CacheRules": "replay.billing",
    "ProviderPricing": "replay.billing",
    "InputBill": "replay.billing",
    "ClientSettings": "replay.client_settings",
    "Saving": "replay.savings",
    "ConversationRun": "replay.calls",
    "ReplayedCall": "replay.calls",
    "NeedCounts": "replay.needs",
    "OnReplayProgress": "replay.runner",
    "OnSkipped": "replay.readers.json_files",
    "RecordedCall": "replay.selection",
    "RecordedConversation": "replay.selection",
    "ReplaySetup": "replay.calls",
    "UnreadableRecording": "replay.readers.json_files",
    "add_savings": "replay.savings",
    "compute_savings": "replay.savings",
    "get_provider_pricing": "replay.billing",
    "read_recordings": "replay.readers",
    "replay_all": "replay.runner",
}

__all__, __getattr__ = export_on_demand(__name__, _HOMES)
