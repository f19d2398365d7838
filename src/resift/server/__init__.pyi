from .app import serve_app as serve_app
from .server_options import Limits as Limits
from .server_options import ServerOptions as ServerOptions
