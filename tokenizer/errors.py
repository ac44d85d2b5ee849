"""What can go wrong between text and ids, and whose fault it is.

TokenizerError          the model folder cannot be used, or a text cannot be encoded
└── TemplateError       the client's messages cannot be rendered; ``param`` names the field at fault
"""


class TokenizerError(Exception):
    """The folder's tokenizer cannot be loaded, or a text cannot be encoded."""


class TemplateError(TokenizerError):
    """A chat that the model's template refuses. Answered with 400: ``message`` is the template's own."""

    def __init__(self, message: str, param: str = "messages") -> None:
        super().__init__(message)
        self.message = message
        self.param = param
