"""What every configuration model shares: strict, frozen, unknown keys refused."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError


class Model(BaseModel):
    """A strict model: unknown keys and values of another type are errors.

    A model that compares its own fields raises `ValueError("FIELD = VALUE, expected ...")`: the
    loader puts file and path before it.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]


def _one_error(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Let a value that is none of the alternatives be one error, not one an alternative."""
    try:
        return validate(value)
    except ValidationError:
        raise PydanticCustomError("alternatives", "none of the alternatives") from None


PositiveIntOrAuto = Annotated[PositiveInt | Literal["auto"], WrapValidator(_one_error)]
NAME_PATTERN = r"^[A-Za-z][A-Za-z0-9_.-]{0,62}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]

WHOLE_FILE = "whole_file"
"""Type of the error that carries what no single field can know, as a list of messages."""
