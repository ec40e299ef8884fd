"""Small edits of listeners and their security, each with the test that finds it."""

from __future__ import annotations

from tests.mutants.edit import Edit

_LISTENERS = "unit/raftctl/config/test_listeners.py"
_KEYS = "unit/raftctl/config/test_config.py"
_DATA = "unit/broker/apis/test_data.py"
_CLIENT = "unit/raftctl/config/test_client_properties.py"
_COMMANDS = "unit/raftctl/cli/test_command_config.py"
_LACKS = "test_what_a_listener_lacks_is_an_error"

EDITS = (
    Edit(
        "nodes_key_goes_before_the_listeners",
        "config._listeners:_overridden",
        "values | {key: own[key].strip() for key in values if key in own}",
        "{key: own[key].strip() for key in values if key in own} | values",
        f"{_LISTENERS}::test_a_listeners_own_keys_come_before_the_nodes",
    ),
    Edit(
        "mechanisms_key_is_forgotten",
        "config._listeners:NodeListeners._sasl",
        "_overridden(SaslKeys, keys, prefix + inner, mine)",
        "keys",
        f"{_LISTENERS}::test_a_mechanisms_own_keys_come_before_its_listeners",
    ),
    Edit(
        "certificates_are_asked_for_where_clients_log_in",
        "config._listeners:NodeListeners._tls",
        'and "ssl.client.auth" not in own',
        "and False",
        f"{_LISTENERS}::test_certificates_of_the_node_are_not_asked_for_where_clients_log_in",
    ),
    Edit(
        "key_of_no_listener_is_taken",
        "config._security_checks:_own_key_problems",
        "if name is None:",
        "if name is not None:",
        f"{_LISTENERS}::{_LACKS}[no listener]",
    ),
    Edit(
        "tls_without_a_certificate_is_taken",
        "config._security_checks:_tls_problems",
        "if is_bound and not tls.keystore.is_given:",
        "if False:",
        f"{_LISTENERS}::{_LACKS}[no certificate]",
    ),
    Edit(
        "nobody_can_log_in_and_it_is_taken",
        "config._security_checks:_sasl_problems",
        "yield from _server_problems(prefix, mechanism)",
        "pass",
        f"{_LISTENERS}::{_LACKS}[no user]",
    ),
    Edit(
        "keys_of_tls_without_tls_are_taken",
        "config._security_checks:_set_for_nothing",
        "if getattr(node, name) != info.default:",
        "if False:",
        f"{_KEYS}::test_a_node_does_not_start_as_if_it_were_safe",
    ),
    Edit(
        "controllers_listener_is_open_beside_protected_ones",
        "config._security_checks:_protocol_problems",
        "elif name not in mapped and set(protocols.values()) != {PLAINTEXT}:",
        "elif False:",
        f"{_LISTENERS}::test_a_controllers_listener_is_open_by_default_only_where_all_are",
    ),
    Edit(
        "complaint_shows_a_secret",
        "config._complaints:written",
        "if is_secret(key)",
        "if False",
        f"{_KEYS}::test_a_node_does_not_start_as_if_it_were_safe",
    ),
    Edit(
        "description_shows_a_secret",
        "config._listeners:NodeListeners.described_listener_keys",
        "None if is_secret(key) else value",
        "value",
        "unit/broker/apis/test_alter_configs.py::test_no_description_holds_a_secret",
    ),
    Edit(
        "broker_authorizes_where_no_controller_does",
        "controller._cluster_control:ClusterControl._check_registration",
        "if request.authorizer and not self._config.authorizer:",
        "if False:",
        "unit/raftctl/controller/test_cluster_control.py"
        "::test_a_broker_authorizes_only_where_the_controller_does[standard--False]",
    ),
    Edit(
        "answer_of_one_listener_is_kept_for_another",
        "broker.apis.discovery._metadata:_answer",
        "(request.version, context.listener, options,",
        '(request.version, "", options,',
        f"{_DATA}::test_a_client_gets_the_addresses_of_its_listener",
    ),
    Edit(
        "leader_without_the_listener_looks_like_none",
        "broker.apis.discovery._metadata:partition_message",
        "if partition.leader in hidden",
        "if False",
        f"{_DATA}::test_a_leader_without_the_listener_is_no_missing_leader",
    ),
    Edit(
        "clients_key_without_effect_is_taken",
        "config._client:parse_client_properties",
        "if name not in CLIENT_KEYS",
        "if False",
        f"{_CLIENT}::test_refused[unknown]",
    ),
    Edit(
        "certificates_of_a_plain_connection_are_ignored",
        "config._client:parse_client_properties",
        "if useless and kind not in protocol",
        "if False",
        f"{_CLIENT}::test_refused[plain]",
    ),
    Edit(
        "option_of_a_login_module_is_ignored",
        "config._client:_login_module",
        "if useless:",
        "if False:",
        f"{_CLIENT}::test_refused[option]",
    ),
    Edit(
        "refused_login_of_a_command_is_repeated",
        "cli.kafka.client_security:_raise_refusal",
        "error.code() == Errors._AUTHENTICATION",
        "False",
        f"{_COMMANDS}::test_wrong_password[command0]",
    ),
    Edit(
        "secret_for_a_token_is_sent_in_the_clear",
        "security.clients:_token_endpoint",
        "check_url(url)",
        "pass",
        f"{_COMMANDS}::test_a_secret_is_not_sent_in_the_clear",
    ),
    Edit(
        "command_checks_no_name_of_a_broker",
        "security.clients:_librdkafka_tls",
        '"https" if is_checked else "none"',
        '"none"',
        f"{_COMMANDS}::test_name_of_the_server_is_checked[command0]",
    ),
)
