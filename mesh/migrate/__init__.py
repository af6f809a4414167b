"""Migration of apps and settings of Siddhi 3, 4 and 5: text in, text and notes out."""

from mesh.migrate.apps import migrate_app as migrate_app
from mesh.migrate.draft import Migrated as Migrated
from mesh.migrate.draft import MigrationState as MigrationState
from mesh.migrate.draft import Note as Note
from mesh.migrate.draft import NoteKind as NoteKind
