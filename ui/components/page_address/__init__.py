"""The page's address: keeps the current run and decode in it, so that a reload or a copied link restores them."""

import gradio as gr

from ui.components.component import component


def page_address() -> gr.HTML:
    """Build the component, which shows nothing.

    Value: ``{"parameters": {name: text}}``; an empty one is removed from the address.
    """
    return component("page_address", elem_id="address")
