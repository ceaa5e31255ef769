"""The five milestones of the design document, checked on the lab's own modules or on a file of the reader."""
