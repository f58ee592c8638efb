"""All operations of the HTTP API, in one table for dispatch and for the OpenAPI document."""

from __future__ import annotations

from functools import lru_cache

from trimtab.http_api_response_types import (
    AgentList,
    CompactionResult,
    ContextUsageInfo,
    DeadLetterRetryResult,
    DeadLetterSessionList,
    EraseResult,
    ErasureRecordList,
    ForgottenTotals,
    HealthStatus,
    HistoryPage,
    MessageAccepted,
    RecalledText,
    SearchResultsText,
    SessionCreated,
    SessionPage,
    SessionState,
    TurnControlResult,
    UndoResult,
    VisibilityInfo,
    encode_json_bytes,
)
from trimtab.server.channels.http.endpoints import (
    compact_undo_erase_fork,
    erasure_and_export,
    health_and_metrics,
    inspection,
    messages,
    sessions,
)
from trimtab.server.channels.http.request_bodies import (
    CreateSessionBody,
    EmptyBody,
    EraseBody,
    EraseTenantBody,
    ForkBody,
    SendMessageBody,
    UndoBody,
)
from trimtab.server.channels.http.request_context_and_operations import (
    ApiOperation,
    EndpointResponse,
    QueryParameter,
    RequestContext,
)

AGENT_PATH = "/v1/agents/{agent}"
SESSION_PATH = f"{AGENT_PATH}/sessions/{{session}}"
USER_PATH = "/v1/users/{user}"
PLAIN_TEXT = "text/plain"

LIMIT_PARAMETER = QueryParameter(
    name="limit",
    description="How many at most.",
    is_integer=True,
    default=100,
    minimum=1,
    maximum=1_000,
)


async def handle_openapi_document(request: RequestContext) -> EndpointResponse:
    del request
    return EndpointResponse(raw_body=_openapi_json())


@lru_cache(maxsize=1)
def _openapi_json() -> bytes:
    from trimtab.server.channels.http.openapi import build_openapi_document

    return encode_json_bytes(build_openapi_document(API_OPERATIONS))


API_OPERATIONS = (
    ApiOperation(
        method="GET",
        path="/v1/agents",
        name="list_agents",
        required_role="read",
        description="List the agents that you may use.",
        handler=sessions.handle_list_agents,
        response_type=AgentList,
    ),
    ApiOperation(
        method="GET",
        path=f"{AGENT_PATH}/sessions",
        name="list_sessions",
        required_role="read",
        description="List the sessions of an agent, in the order of their names.",
        handler=sessions.handle_list_sessions,
        response_type=SessionPage,
        query_parameters=(
            QueryParameter(name="after", description="`next` of the previous page.", maximum=128),
            LIMIT_PARAMETER,
        ),
        error_statuses=(404,),
    ),
    ApiOperation(
        method="POST",
        path=f"{AGENT_PATH}/sessions",
        name="create_session",
        required_role="talk",
        description="Create a session. You need not: the first message creates one as well.",
        handler=sessions.handle_create_session,
        response_type=SessionCreated,
        status=201,
        body_model=CreateSessionBody,
        error_statuses=(404, 409),
    ),
    ApiOperation(
        method="GET",
        path=SESSION_PATH,
        name="get_session",
        required_role="read",
        description="Read the state of a session.",
        handler=sessions.handle_get_session_state,
        response_type=SessionState,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="DELETE",
        path=SESSION_PATH,
        name="delete_session",
        required_role="admin",
        description="Delete a session with everything derived from it, and the messages that wait "
        "in it; a running turn is cancelled.",
        handler=sessions.handle_delete_session,
        status=204,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="POST",
        path=f"{SESSION_PATH}/messages",
        name="send_message",
        required_role="talk",
        description="Send a message to the agent. The response means that it is queued and will be "
        "answered. With `Accept: text/event-stream` the answer follows as events, up to the end of "
        "the turn. A message with a key that is known is not added again; with `Last-Event-ID` as "
        "well, the events continue after that one.",
        handler=messages.handle_enqueue_message,
        response_type=MessageAccepted,
        status=202,
        body_model=SendMessageBody,
        can_stream=True,
        error_statuses=(404, 409),
    ),
    ApiOperation(
        method="GET",
        path=f"{SESSION_PATH}/events",
        name="follow_session",
        required_role="read",
        description="Follow a session as server-sent events, from now on or after `Last-Event-ID`, "
        "without a gap or a repeat.",
        handler=messages.handle_follow_session,
        always_streams=True,
        query_parameters=(
            QueryParameter(
                name="after",
                description="The id of the last event you have, if you cannot send "
                "`Last-Event-ID`; 0 starts at the beginning.",
                maximum=60,
            ),
        ),
        error_statuses=(404,),
    ),
    ApiOperation(
        method="GET",
        path=f"{SESSION_PATH}/history",
        name="read_history",
        required_role="read",
        description="Read all messages, including those hidden from the model.",
        handler=inspection.handle_read_history,
        response_type=HistoryPage,
        query_parameters=(
            QueryParameter(
                name="after", description="Messages after this position.", is_integer=True
            ),
            QueryParameter(
                name="before",
                description="The last messages before this position, instead.",
                is_integer=True,
                minimum=1,
            ),
            LIMIT_PARAMETER,
        ),
        error_statuses=(404,),
    ),
    ApiOperation(
        method="GET",
        path=f"{SESSION_PATH}/context",
        name="read_context",
        required_role="read",
        description="Read how the tokens of the next call are used; as text with `Accept: "
        "text/plain`.",
        handler=inspection.handle_read_context_usage,
        response_type=ContextUsageInfo,
        text_media_type=PLAIN_TEXT,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="GET",
        path=f"{SESSION_PATH}/why/{{handle}}",
        name="explain_visibility",
        required_role="read",
        description="Explain why the model sees a message, or a part of it, as it does.",
        handler=inspection.handle_explain_visibility,
        response_type=VisibilityInfo,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="GET",
        path=f"{SESSION_PATH}/recall/{{handle}}",
        name="recall",
        required_role="read",
        description="Read a text exactly as it was written, hidden or not.",
        handler=inspection.handle_recall_text,
        response_type=RecalledText,
        text_media_type=PLAIN_TEXT,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="GET",
        path=f"{SESSION_PATH}/search",
        name="search",
        required_role="read",
        description="Search messages by words, those hidden from the model first.",
        handler=inspection.handle_search_messages,
        response_type=SearchResultsText,
        query_parameters=(
            QueryParameter(
                name="q", description="The words.", required=True, minimum=1, maximum=1_000
            ),
        ),
        error_statuses=(404,),
    ),
    ApiOperation(
        method="POST",
        path=f"{SESSION_PATH}/compact",
        name="compact",
        required_role="talk",
        description="Compact the context now; nothing is lost.",
        handler=compact_undo_erase_fork.handle_compact_context,
        response_type=CompactionResult,
        body_model=EmptyBody,
        error_statuses=(404, 409),
    ),
    ApiOperation(
        method="POST",
        path=f"{SESSION_PATH}/undo",
        name="undo",
        required_role="talk",
        description="Undo the newest message of the user and all after it, or more. Effects of "
        "tools are not undone.",
        handler=compact_undo_erase_fork.handle_undo_messages,
        response_type=UndoResult,
        body_model=UndoBody,
        error_statuses=(404, 409),
    ),
    ApiOperation(
        method="POST",
        path=f"{SESSION_PATH}/erase",
        name="erase",
        required_role="admin",
        description="Erase a message, or a part of it, with everything derived from it. It cannot "
        "be restored. A running turn is cancelled and started again without it. Repeating this "
        "changes nothing.",
        handler=compact_undo_erase_fork.handle_erase_message,
        response_type=EraseResult,
        body_model=EraseBody,
        error_statuses=(404, 409),
    ),
    ApiOperation(
        method="POST",
        path=f"{SESSION_PATH}/fork",
        name="fork",
        required_role="talk",
        description="Create a session that begins with the history of this one.",
        handler=compact_undo_erase_fork.handle_fork_session,
        response_type=SessionCreated,
        status=201,
        body_model=ForkBody,
        error_statuses=(404, 409),
    ),
    ApiOperation(
        method="POST",
        path=f"{SESSION_PATH}/stop",
        name="stop",
        required_role="talk",
        description="Stop the running turn at once: the text so far is kept, and tools are killed.",
        handler=messages.handle_stop_turn,
        response_type=TurnControlResult,
        body_model=EmptyBody,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="POST",
        path=f"{SESSION_PATH}/resume",
        name="resume",
        required_role="talk",
        description="Continue a turn that was stopped, or retry one that failed.",
        handler=messages.handle_resume_turn,
        response_type=TurnControlResult,
        status=202,
        body_model=EmptyBody,
        error_statuses=(404, 409),
    ),
    ApiOperation(
        method="DELETE",
        path=USER_PATH,
        name="erase_user",
        description="Erase a user of your tenant: sessions that are the user's own are deleted; in "
        "sessions with others the user's messages and the answers to them are erased. It cannot be "
        "restored. Repeating this changes nothing.",
        handler=erasure_and_export.handle_erase_user,
        response_type=ForgottenTotals,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="GET",
        path=f"{USER_PATH}/export",
        name="export_user",
        description="Read a copy of all that is kept of a user, hidden and waiting messages and "
        "files included, as lines of JSON. The last line has the kind `end`; without it the copy "
        "is cut off.",
        handler=erasure_and_export.handle_export_user,
        text_media_type=erasure_and_export.JSON_LINES_MEDIA_TYPE,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="DELETE",
        path="/v1/tenant",
        name="erase_tenant",
        description="Erase all sessions of your tenant, with all that waits or is scheduled in "
        "them. It cannot be restored. Repeating this changes nothing.",
        handler=erasure_and_export.handle_erase_tenant,
        response_type=ForgottenTotals,
        body_model=EraseTenantBody,
    ),
    ApiOperation(
        method="GET",
        path="/v1/tenant/export",
        name="export_tenant",
        description="Read a copy of all that is kept of your tenant, in the same lines.",
        handler=erasure_and_export.handle_export_tenant,
        text_media_type=erasure_and_export.JSON_LINES_MEDIA_TYPE,
    ),
    ApiOperation(
        method="GET",
        path="/v1/erasures",
        name="list_erasures",
        description="List what was erased for your tenant, the newest first, without the content.",
        handler=erasure_and_export.handle_list_erasures,
        response_type=ErasureRecordList,
        query_parameters=(
            QueryParameter(name="user", description="Erasures of this user.", maximum=128),
            QueryParameter(
                name="session", description="Those of a session, `AGENT/NAME`.", maximum=257
            ),
            LIMIT_PARAMETER,
        ),
    ),
    ApiOperation(
        method="GET",
        path="/v1/dead-letters",
        name="list_dead_letters",
        required_role="read",
        description="List your sessions with dead letters, the newest first: messages whose turn "
        "failed and is not retried, and replies that could not be delivered.",
        handler=sessions.handle_list_dead_letter_sessions,
        response_type=DeadLetterSessionList,
        query_parameters=(LIMIT_PARAMETER,),
    ),
    ApiOperation(
        method="POST",
        path="/v1/dead-letters/retry",
        name="retry_all_dead_letters",
        required_role="admin",
        description="Retry the dead letters of the newest 1,000 sessions; repeat it for more.",
        handler=messages.handle_retry_all_dead_letters,
        response_type=DeadLetterRetryResult,
        status=202,
        body_model=EmptyBody,
    ),
    ApiOperation(
        method="POST",
        path="/v1/dead-letters/{agent}/{session}/retry",
        name="retry_dead_letters",
        required_role="admin",
        description="Retry the dead letters of a session.",
        handler=messages.handle_retry_dead_letters,
        response_type=TurnControlResult,
        status=202,
        body_model=EmptyBody,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="GET",
        path="/healthz",
        name="health",
        description="Whether the server runs.",
        handler=health_and_metrics.handle_liveness_check,
        response_type=HealthStatus,
        is_public=True,
    ),
    ApiOperation(
        method="GET",
        path="/readyz",
        name="readiness",
        description="Whether the store is available and the server is not shutting down.",
        handler=health_and_metrics.handle_readiness_check,
        response_type=HealthStatus,
        is_public=True,
        error_statuses=(503,),
    ),
    ApiOperation(
        method="GET",
        path="/metrics",
        name="metrics",
        required_role="metrics",
        description="Metrics for Prometheus, of all tenants; for keys of the role `metrics`, "
        "which read nothing else.",
        handler=health_and_metrics.handle_read_metrics,
        text_media_type=PLAIN_TEXT,
        error_statuses=(403, 404),
    ),
    ApiOperation(
        method="GET",
        path="/openapi.json",
        name="openapi",
        description="This document.",
        handler=handle_openapi_document,
        response_type=dict,
        is_public=True,
    ),
)
