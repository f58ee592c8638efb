"""All that can be asked over HTTP, in one table: it dispatches, and it describes itself."""

from __future__ import annotations

from functools import lru_cache

from trimtab.http_responses import (
    ActionResult,
    AgentList,
    CompactionResult,
    ContextUsageInfo,
    DeadLetterSessionList,
    EraseResult,
    HealthStatus,
    HistoryPage,
    MessageAccepted,
    RecalledText,
    ReviveResult,
    SearchResultText,
    SessionCreated,
    SessionPage,
    SessionState,
    UndoResult,
    VisibilityInfo,
    encode_json_bytes,
)
from trimtab.server.channels.http.endpoints import (
    admin,
    inspection,
    messages,
    session_changes,
    sessions,
)
from trimtab.server.channels.http.request_bodies import (
    CreateSessionBody,
    EmptyBody,
    EraseBody,
    ForkBody,
    SendMessageBody,
    UndoBody,
)
from trimtab.server.channels.http.request_context import (
    ApiOperation,
    EndpointResponse,
    QueryParameter,
    RequestContext,
)

AGENT_PATH = "/v1/agents/{agent}"
SESSION_PATH = f"{AGENT_PATH}/sessions/{{session}}"
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
        description="List the agents that you may use.",
        handler=sessions.handle_list_agents,
        response_type=AgentList,
    ),
    ApiOperation(
        method="GET",
        path=f"{AGENT_PATH}/sessions",
        name="list_sessions",
        description="List the sessions of an agent, in the order of their names.",
        handler=sessions.handle_list_sessions,
        response_type=SessionPage,
        query_parameters=(
            QueryParameter(name="after", description="`next` of the page before.", maximum=128),
            LIMIT_PARAMETER,
        ),
        error_statuses=(404,),
    ),
    ApiOperation(
        method="POST",
        path=f"{AGENT_PATH}/sessions",
        name="create_session",
        description="Begin a session. Not needed: the first message begins one, too.",
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
        description="How a session stands.",
        handler=sessions.handle_get_session_state,
        response_type=SessionState,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="DELETE",
        path=SESSION_PATH,
        name="delete_session",
        description="Remove a session with all that was made from it, and all that waits in it; "
        "a turn "
        "that runs is broken off.",
        handler=sessions.handle_delete_session,
        status=204,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="POST",
        path=f"{SESSION_PATH}/messages",
        name="send_message",
        description="Say something to the agent. The message is kept when this answers, and "
        "will be "
        "answered; with `Accept: text/event-stream` the answer follows as events, up to the end "
        "of the turn. Sent again with the same key, it is not said again; with `Last-Event-ID` "
        "besides, the events go on where they were broken off.",
        handler=messages.handle_send_message,
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
        description="Follow a session: what happens in it, as server-sent events, from now on "
        "or from "
        "behind `Last-Event-ID`, without a gap or a repeat.",
        handler=messages.handle_follow_session,
        always_streams=True,
        query_parameters=(
            QueryParameter(
                name="after",
                description="The id of the last event you have, where you cannot send "
                "`Last-Event-ID`; 0 "
                "begins at the beginning.",
                maximum=60,
            ),
        ),
        error_statuses=(404,),
    ),
    ApiOperation(
        method="GET",
        path=f"{SESSION_PATH}/history",
        name="read_history",
        description="All that was said, hidden from the model or not.",
        handler=inspection.handle_read_history,
        response_type=HistoryPage,
        query_parameters=(
            QueryParameter(
                name="after", description="Messages behind this position.", is_integer=True
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
        description="Where the tokens of the next call would go; as a picture of text with "
        "`Accept: "
        "text/plain`.",
        handler=inspection.handle_read_context_usage,
        response_type=ContextUsageInfo,
        text_media_type=PLAIN_TEXT,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="GET",
        path=f"{SESSION_PATH}/why/{{handle}}",
        name="read_why",
        description="Why the model sees a message, or a part of it, as it does.",
        handler=inspection.handle_explain_visibility,
        response_type=VisibilityInfo,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="GET",
        path=f"{SESSION_PATH}/recall/{{handle}}",
        name="recall",
        description="A text exactly as it was said, hidden or not.",
        handler=inspection.handle_recall_text,
        response_type=RecalledText,
        text_media_type=PLAIN_TEXT,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="GET",
        path=f"{SESSION_PATH}/search",
        name="search",
        description="Find messages by their words, what the model does not see first.",
        handler=inspection.handle_search_messages,
        response_type=SearchResultText,
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
        description="Make the context smaller now; nothing is lost.",
        handler=session_changes.handle_compact_context,
        response_type=CompactionResult,
        body_model=EmptyBody,
        error_statuses=(404, 409),
    ),
    ApiOperation(
        method="POST",
        path=f"{SESSION_PATH}/undo",
        name="undo",
        description="Take back the newest message of the user and all behind it, or more. What "
        "tools did "
        "outside is not undone.",
        handler=session_changes.handle_undo_messages,
        response_type=UndoResult,
        body_model=UndoBody,
        error_statuses=(404, 409),
    ),
    ApiOperation(
        method="POST",
        path=f"{SESSION_PATH}/erase",
        name="erase",
        description="Destroy a message, or a part of it, with all that was made from it: it "
        "cannot be "
        "brought back. A turn that runs is broken off and begun again without it. The same again "
        "does no harm.",
        handler=session_changes.handle_erase_message,
        response_type=EraseResult,
        body_model=EraseBody,
        error_statuses=(404, 409),
    ),
    ApiOperation(
        method="POST",
        path=f"{SESSION_PATH}/fork",
        name="fork",
        description="Begin a session that shares the past of this one.",
        handler=session_changes.handle_fork_session,
        response_type=SessionCreated,
        status=201,
        body_model=ForkBody,
        error_statuses=(404, 409),
    ),
    ApiOperation(
        method="POST",
        path=f"{SESSION_PATH}/stop",
        name="stop",
        description="Let the turn that runs end after this step; `resume` goes on with it.",
        handler=messages.handle_stop_turn,
        response_type=ActionResult,
        body_model=EmptyBody,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="POST",
        path=f"{SESSION_PATH}/resume",
        name="resume",
        description="Go on with a turn that was stopped or given up.",
        handler=messages.handle_resume_turn,
        response_type=ActionResult,
        status=202,
        body_model=EmptyBody,
        error_statuses=(404, 409),
    ),
    ApiOperation(
        method="GET",
        path="/v1/dead",
        name="list_dead",
        description="List your sessions whose turns were given up, the newest first.",
        handler=sessions.handle_list_dead_letters,
        response_type=DeadLetterSessionList,
        query_parameters=(LIMIT_PARAMETER,),
    ),
    ApiOperation(
        method="POST",
        path="/v1/dead",
        name="revive_all",
        description=(
            "Try again all that was given up, of the newest 1,000 sessions; ask again for more."
        ),
        handler=messages.handle_revive_all_sessions,
        response_type=ReviveResult,
        status=202,
        body_model=EmptyBody,
    ),
    ApiOperation(
        method="POST",
        path="/v1/dead/{agent}/{session}",
        name="revive",
        description="Try again what was given up.",
        handler=messages.handle_revive_session,
        response_type=ActionResult,
        status=202,
        body_model=EmptyBody,
        error_statuses=(404,),
    ),
    ApiOperation(
        method="GET",
        path="/healthz",
        name="health",
        description="Whether the server runs.",
        handler=admin.handle_health_check,
        response_type=HealthStatus,
        is_public=True,
    ),
    ApiOperation(
        method="GET",
        path="/readyz",
        name="readiness",
        description="Whether the store can be reached and the server is not about to stop.",
        handler=admin.handle_readiness_check,
        response_type=HealthStatus,
        is_public=True,
        error_statuses=(503,),
    ),
    ApiOperation(
        method="GET",
        path="/metrics",
        name="metrics",
        description="Figures for Prometheus, of all tenants; for keys that were made with "
        "`--metrics`, "
        "which read nothing else.",
        handler=admin.handle_read_metrics,
        text_media_type=PLAIN_TEXT,
        key_scope="metrics",
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
