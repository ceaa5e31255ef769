"""A ``gr.Blocks`` whose events always answer: failures become messages, and the server keeps running."""

import json
import logging
from typing import Any

import gradio as gr
from gradio.block_function import BlockFunction
from gradio.data_classes import BlocksConfigDict

from core.storage.error_messages import explain_error, is_machine_fault
from core.storage.errors import LabError
from ui.serving.errors import escaped
from ui.serving.visitors import OTHERS_SESSION, SESSIONS, visitor_of

INTERNAL_ERROR = "Internal error. It was logged, and everything else keeps running. Please try again."
_log = logging.getLogger(__name__)


class GuardedPage(gr.Blocks):
    """A page whose events return an error message where Gradio would return ``null``.

    It keeps no connection open. Gradio's page would hold one for as long as it is open, and a browser has only six to a
    host: a sixth tab would then wait for the others forever. Scripts report that a page is open, see ``Presence``.
    """

    def get_config_file(self) -> BlocksConfigDict:
        """Return the page's configuration, without the connection that Gradio would keep open."""
        config = super().get_config_file()
        config["connect_heartbeat"] = False
        return config

    async def preprocess_data(self, block_fn: BlockFunction, inputs: list[Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Convert the JSON values of a client, which may be malformed, to Python values."""
        if _has_lone_surrogate(inputs):  # the answer could not be encoded, and the page would wait for it
            raise gr.Error("A text has half of a character, an unpaired surrogate.", print_exception=False)
        try:
            return await super().preprocess_data(block_fn, inputs, *args, **kwargs)
        except gr.Error as error:  # of a component; it repeats the value, and Gradio would log it with a traceback
            raise gr.Error(escaped(error.message), print_exception=False) from error
        except Exception as error:
            _log.info(
                "invalid values refused", extra={"handler": block_fn.api_name or block_fn.name, "error": repr(error)}
            )
            detail = f"{type(error).__name__}: {str(error)[:200]}" if str(error) else type(error).__name__
            raise gr.Error(escaped(f"Invalid value in the request: {detail}"), print_exception=False) from error

    async def process_api(self, block_fn: BlockFunction | int, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Run a handler, if the session belongs to the visitor."""
        request = getattr(kwargs.get("request"), "request", None)
        if request is not None and not SESSIONS.claim(kwargs.get("session_hash"), visitor_of(request.scope)):
            raise gr.Error(OTHERS_SESSION, print_exception=False)
        event = self.fns.get(block_fn) if isinstance(block_fn, int) else block_fn
        if event is not None and event.fn is None:
            raise gr.Error("This event is handled in the browser.", print_exception=False)
        try:
            return await super().process_api(block_fn, *args, **kwargs)
        except gr.Error:
            raise
        except LabError as error:
            raise gr.Error(escaped(error), print_exception=False) from error
        except Exception as error:
            handler = block_fn if isinstance(block_fn, int) else block_fn.api_name or block_fn.name
            _log.exception("handler failed", extra={"handler": handler})
            raise gr.Error(escaped(message_for(error)), print_exception=False) from error


def _has_lone_surrogate(values: Any) -> bool:
    try:
        json.dumps(values, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return True
    return False


def message_for(error: Exception) -> str:
    """Return a user's message for an exception: the reason if the machine failed, such as a full disk."""
    return f"The request failed: {explain_error(error)}." if is_machine_fault(error) else INTERNAL_ERROR
