"""Whatever goes wrong in a handler, who asked is told so in words, and the server goes on."""

import logging
from typing import Any

import gradio as gr
from gradio.block_function import BlockFunction

from core.storage.error_messages import explain_error, is_machine_fault
from core.storage.errors import LabError
from ui.serving.errors import in_words
from ui.serving.visitors import SESSIONS, visitor_of

FAULT = "Something went wrong here, which is a fault of the program. It was noted; everything else goes on. Try again."
_log = logging.getLogger(__name__)


class GuardedPage(gr.Blocks):
    """A page whose every event answers with a message where Gradio would answer with ``null``."""

    async def preprocess_data(self, block_fn: BlockFunction, inputs: list[Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Turn what a browser or a program sent into values; it may be anything."""
        try:
            return await super().preprocess_data(block_fn, inputs, *args, **kwargs)
        except gr.Error:
            raise
        except Exception as error:
            _log.info(
                "refused what was sent", extra={"handler": block_fn.api_name or block_fn.name, "why": repr(error)}
            )
            what = f"{type(error).__name__}: {str(error)[:200]}" if str(error) else type(error).__name__
            raise gr.Error(in_words(f"A value that was sent does not fit: {what}"), print_exception=False) from error

    async def process_api(self, block_fn: BlockFunction | int, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Run a handler, in a session of who asks."""
        request = getattr(kwargs.get("request"), "request", None)
        if request is not None and not SESSIONS.admits(kwargs.get("session_hash"), visitor_of(request.scope)):
            raise gr.Error("This is not your session.", print_exception=False)
        try:
            return await super().process_api(block_fn, *args, **kwargs)
        except gr.Error:
            raise
        except LabError as error:
            raise gr.Error(in_words(error), print_exception=False) from error
        except Exception as error:
            handler = block_fn if isinstance(block_fn, int) else block_fn.api_name or block_fn.name
            _log.exception("handler failed", extra={"handler": handler})
            raise gr.Error(in_words(message_for(error)), print_exception=False) from error


def message_for(error: Exception) -> str:
    """Say what happened, if it was the machine's doing; else that it is a fault, without what only the log may tell."""
    return f"This did not work: {explain_error(error)}." if is_machine_fault(error) else FAULT
