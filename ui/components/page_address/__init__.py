"""The page's address: keeps the current run and decode in it, so that a reload or a copied link restores them."""

from typing import Any

import gradio as gr

from ui.components.component import component


def page_address(*, elem_id: str = "address") -> gr.HTML:
    """Build the component, which shows nothing. Value: ``address_value``."""
    return component("page_address", elem_id=elem_id)


def address_value(parameters: dict[str, str]) -> dict[str, Any]:
    """Return parameters of the address as the component's value; an empty one is removed from the address."""
    return {"parameters": parameters}
