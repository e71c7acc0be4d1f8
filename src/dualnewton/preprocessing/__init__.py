"""Tables of mixed columns as matrices: the kind of each column, its encoding, and coefficients in original units."""

from dualnewton.preprocessing.encoding import Encoding
from dualnewton.preprocessing.roles import Choices, Kind, Role, roles_of

__all__ = ["Choices", "Encoding", "Kind", "Role", "roles_of"]
