"""The catalog that settings name."""

from pathlib import Path

from siltlog.infra.errors import ConfigError
from siltlog.infra.security.secret_file import read_secret
from siltlog.infra.settings.settings import ServerSettings
from siltlog.pipelines.catalog.register import Catalog


def catalog_of(settings: ServerSettings) -> Catalog:
    """Raises ConfigError where none is named, and for one that cannot be asked."""
    if settings.catalog_glue:
        return glue_catalog(settings, settings.catalog_glue, settings.catalog_region)
    if settings.catalog_unity:
        file = settings.catalog_token_file
        return unity_catalog(settings.catalog_unity, settings.catalog_schema, Path(file) if file else None)
    raise ConfigError("no catalog is named: set SILT_CATALOG_GLUE, or SILT_CATALOG_UNITY and SILT_CATALOG_SCHEMA")


def glue_catalog(settings: ServerSettings, database: str, region: str) -> Catalog:
    """Raises ConfigError where the tables are not on S3."""
    from siltlog.pipelines.catalog.glue import GlueCatalog

    if not settings.root_uri.startswith("s3://"):
        raise ConfigError(f"what reads tables of AWS Glue reads S3, and the root is {settings.root_uri}")
    return GlueCatalog(database, region or settings.s3_region)


def unity_catalog(url: str, schema: str, token_file: Path | None) -> Catalog:
    """Raises ConfigError for a token that cannot be read."""
    from siltlog.pipelines.catalog.unity import UnityCatalog

    try:
        token = "" if token_file is None else read_secret(token_file)
    except ValueError as error:
        raise ConfigError(f"the file of the catalog's token, {token_file}: {error}") from None
    return UnityCatalog(url, schema, token)
