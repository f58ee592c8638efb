"""A typed client of `trimtab serve`. Needs the extra `client`."""

from __future__ import annotations

from trimtab_serve.client.client import Client as Client
from trimtab_serve.client.session import MessageContent as MessageContent
from trimtab_serve.client.session import RemoteSession as RemoteSession
from trimtab_serve.client.session import RemoteTurnFailed as RemoteTurnFailed
from trimtab_serve.client.transport import ApiError as ApiError
from trimtab_serve.client.transport import ServerUnreachable as ServerUnreachable
from trimtab_serve.client.transport import StreamEvent as StreamEvent
from trimtab_serve.client.types import AgentInfo as AgentInfo
from trimtab_serve.client.types import CompactionResult as CompactionResult
from trimtab_serve.client.types import ContextUsageInfo as ContextUsageInfo
from trimtab_serve.client.types import DeadLetterSessionInfo as DeadLetterSessionInfo
from trimtab_serve.client.types import EraseResult as EraseResult
from trimtab_serve.client.types import ErasureRecordInfo as ErasureRecordInfo
from trimtab_serve.client.types import ErasureStatus as ErasureStatus
from trimtab_serve.client.types import MediaInfo as MediaInfo
from trimtab_serve.client.types import MessageAccepted as MessageAccepted
from trimtab_serve.client.types import MessageInfo as MessageInfo
from trimtab_serve.client.types import SessionInfo as SessionInfo
from trimtab_serve.client.types import SessionState as SessionState
from trimtab_serve.client.types import ToolCallInfo as ToolCallInfo
from trimtab_serve.client.types import ToolResultInfo as ToolResultInfo
from trimtab_serve.client.types import UndoResult as UndoResult

__all__ = [
    "AgentInfo",
    "ApiError",
    "Client",
    "CompactionResult",
    "ContextUsageInfo",
    "DeadLetterSessionInfo",
    "EraseResult",
    "ErasureRecordInfo",
    "ErasureStatus",
    "MediaInfo",
    "MessageAccepted",
    "MessageContent",
    "MessageInfo",
    "RemoteSession",
    "RemoteTurnFailed",
    "ServerUnreachable",
    "SessionInfo",
    "SessionState",
    "StreamEvent",
    "ToolCallInfo",
    "ToolResultInfo",
    "UndoResult",
]
