"""Replay recorded conversations under other policies: what each would send, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.lazy_names import export_on_demand

if TYPE_CHECKING:
    from trimtab.replay.billing import CacheRules as CacheRules
    from trimtab.replay.billing import InputBill as InputBill
    from trimtab.replay.billing import ProviderPricing as ProviderPricing
    from trimtab.replay.billing import list_billed_providers as list_billed_providers
    from trimtab.replay.needs import NeedCounts as NeedCounts
    from trimtab.replay.readers import read_recordings as read_recordings
    from trimtab.replay.readers.json_files import OnSkipped as OnSkipped
    from trimtab.replay.readers.json_files import UnreadableRecording as UnreadableRecording
    from trimtab.replay.results import ReplayStudy as ReplayStudy
    from trimtab.replay.results import build_study as build_study
    from trimtab.replay.runner import ConversationRun as ConversationRun
    from trimtab.replay.runner import OnReplayProgress as OnReplayProgress
    from trimtab.replay.runner import ReplayedCall as ReplayedCall
    from trimtab.replay.runner import ReplaySetup as ReplaySetup
    from trimtab.replay.runner import replay_all as replay_all
    from trimtab.replay.selection import CorpusHalf as CorpusHalf
    from trimtab.replay.selection import RecordedCall as RecordedCall
    from trimtab.replay.selection import RecordedConversation as RecordedConversation
    from trimtab.replay.selection import select_conversations as select_conversations
    from trimtab.replay.setup_costs import SetupCostAtProvider as SetupCostAtProvider
    from trimtab.replay.setup_costs import SetupResult as SetupResult
    from trimtab.replay.setup_costs import TimesCheaper as TimesCheaper

_HOMES = {
    "CacheRules": "replay.billing",
    "ProviderPricing": "replay.billing",
    "InputBill": "replay.billing",
    "ReplayStudy": "replay.results",
    "ConversationRun": "replay.runner",
    "ReplayedCall": "replay.runner",
    "NeedCounts": "replay.needs",
    "OnReplayProgress": "replay.runner",
    "CorpusHalf": "replay.selection",
    "OnSkipped": "replay.readers.json_files",
    "RecordedCall": "replay.selection",
    "RecordedConversation": "replay.selection",
    "SetupResult": "replay.setup_costs",
    "SetupCostAtProvider": "replay.setup_costs",
    "TimesCheaper": "replay.setup_costs",
    "ReplaySetup": "replay.runner",
    "UnreadableRecording": "replay.readers.json_files",
    "build_study": "replay.results",
    "list_billed_providers": "replay.billing",
    "read_recordings": "replay.readers",
    "replay_all": "replay.runner",
    "select_conversations": "replay.selection",
}

__all__, __getattr__ = export_on_demand(__name__, _HOMES)
