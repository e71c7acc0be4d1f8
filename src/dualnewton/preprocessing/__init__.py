"""Tables of mixed columns as matrices: what each column is, how it is encoded, and coefficients in its original units."""

from dualnewton.preprocessing.encoding import Encoding
from dualnewton.preprocessing.roles import Choices, Kind, Role, roles_of

__all__ = ["Choices", "Encoding", "Kind", "Role", "roles_of"]
