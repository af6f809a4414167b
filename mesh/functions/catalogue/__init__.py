"""Catalogue of every name that SiddhiQL can call, with parameters and results.

    value, type = Argument(INT, Form.ATTRIBUTE), Argument(STRING, Form.CONSTANT, "long")
    resolve(SCALARS, "cast", (value, type))  # Resolution(.., type=AttributeType.LONG)

Calls are checked as the reference engine checks them when it creates an app.
"""

from mesh.functions.catalogue.absent import instead_of_call as instead_of_call
from mesh.functions.catalogue.absent import instead_of_kind as instead_of_kind
from mesh.functions.catalogue.documented import DOCUMENTED_FUNCTIONS as DOCUMENTED_FUNCTIONS
from mesh.functions.catalogue.documented import (
    DOCUMENTED_STREAM_FUNCTIONS as DOCUMENTED_STREAM_FUNCTIONS,
)
from mesh.functions.catalogue.documented import DOCUMENTED_WINDOWS as DOCUMENTED_WINDOWS
from mesh.functions.catalogue.documented import STATEFUL_FUNCTIONS as STATEFUL_FUNCTIONS
from mesh.functions.catalogue.documented import (
    STATEFUL_STREAM_FUNCTIONS as STATEFUL_STREAM_FUNCTIONS,
)
from mesh.functions.catalogue.engine import AGGREGATORS as AGGREGATORS
from mesh.functions.catalogue.engine import INCREMENTAL_AGGREGATORS as INCREMENTAL_AGGREGATORS
from mesh.functions.catalogue.engine import SCALARS as SCALARS
from mesh.functions.catalogue.engine import STREAM_FUNCTIONS as STREAM_FUNCTIONS
from mesh.functions.catalogue.event_functions import EVENT_FUNCTIONS as EVENT_FUNCTIONS
from mesh.functions.catalogue.event_functions import OF_RIVER as OF_RIVER
from mesh.functions.catalogue.event_functions import TRAINED_BY as TRAINED_BY
from mesh.functions.catalogue.extensions import EXTENSIONS as EXTENSIONS
from mesh.functions.catalogue.extensions import EntryOrigin as EntryOrigin
from mesh.functions.catalogue.extensions import Extension as Extension
from mesh.functions.catalogue.extensions import ExtensionOption as ExtensionOption
from mesh.functions.catalogue.extensions import ExtensionRole as ExtensionRole
from mesh.functions.catalogue.extensions import check_options as check_options
from mesh.functions.catalogue.extensions import find_extension as find_extension
from mesh.functions.catalogue.model import Argument as Argument
from mesh.functions.catalogue.model import ArgumentForm as ArgumentForm
from mesh.functions.catalogue.model import CallRefusal as CallRefusal
from mesh.functions.catalogue.model import NameKind as NameKind
from mesh.functions.catalogue.model import Overload as Overload
from mesh.functions.catalogue.model import Parameter as Parameter
from mesh.functions.catalogue.model import Reason as Reason
from mesh.functions.catalogue.model import Requirement as Requirement
from mesh.functions.catalogue.model import Resolution as Resolution
from mesh.functions.catalogue.model import Signature as Signature
from mesh.functions.catalogue.model import script_function as script_function
from mesh.functions.catalogue.resolve import describe as describe
from mesh.functions.catalogue.resolve import did_you_mean as did_you_mean
from mesh.functions.catalogue.resolve import resolve as resolve
from mesh.functions.catalogue.statements import STATEMENTS as STATEMENTS
from mesh.functions.catalogue.windows import WINDOWS as WINDOWS
