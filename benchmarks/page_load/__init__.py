"""What the page is measured with: the app in a process of its own, and visitors of it in another."""
