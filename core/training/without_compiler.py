"""PyTorch's optimizers without importing its unused compiler, which takes 75 MB and two seconds."""

import inspect

import torch


class Optimizer(torch.optim.Optimizer):
    """``torch.optim.Optimizer`` that does not import ``torch._dynamo`` on the first call of its methods."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class Adam(Optimizer, torch.optim.Adam):
    """``torch.optim.Adam``, likewise."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


class AdamW(Optimizer, torch.optim.AdamW):
    """``torch.optim.AdamW``, likewise."""

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
