"""Plans on disk, so that a process need not plan what another one has planned.

Importing this package imports nothing but the standard library.
"""

from .folder import Entry as Entry
from .folder import Folder as Folder
from .frame import Provenance as Provenance
from .frame import unwrap as unwrap
from .frame import wrap as wrap
from .inspection import Inspected as Inspected
from .inspection import inspected as inspected
from .pack import Pack as Pack
from .pack import write_pack as write_pack
from .setting import open_store as open_store
from .setting import user_folder as user_folder
from .store import Store as Store
from .trust import NotTrustedError as NotTrustedError
