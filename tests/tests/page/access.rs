//! What a person does with a server that requires a token: sign in, see wrong tokens, sign out, and sign in again after a
//! restart.

use anyhow::ensure;
use testkit::browser::Browser;
use testkit::layout::overflow;
use testkit::programs::Server;

use super::views::says;

const TOKEN: &str = "q0R+Yz/8fKxw2lBvJm1tHc5u=";

fn text(browser: &Browser) -> anyhow::Result<String> {
    Ok(browser.run("return document.body.innerText")?.as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_person_signs_in_sees_wrong_tokens_and_signs_out() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start_with_token(data.path(), TOKEN)?;
    browser.open(&server.address)?;
    ensure!(text(&browser)?.contains("You are not signed in"), "{}", text(&browser)?);
    let wrong =
        ureq::get(format!("{}/api/v1/runs", server.address)).header("authorization", "Bearer wrong").call();
    ensure!(wrong.is_err(), "a wrong token was accepted");

    browser.open(&format!("{}/?q=gpt&token={TOKEN}", server.address))?;
    says(&browser, "unauthorized", "1 request with a wrong token.*newest from 127.0.0.1")?;
    let address = browser.run("return location.search")?;
    ensure!(address == "?q=gpt", "{address}");
    ensure!(browser.run("return document.cookie")? == "", "scripts can read the cookie");
    // The bar has a button more than without a token, and still fits on a phone.
    browser.wait("a way to sign out", "return document.querySelector('[data-testid=sign-out]')")?;
    browser.viewport(400, 900)?;
    ensure!(overflow(&browser)?.is_none(), "too wide: {:?}", overflow(&browser)?);
    browser.viewport(1440, 900)?;
    // Signed in, the address still loses its token.
    browser.open(&format!("{}/plan?token={TOKEN}", server.address))?;
    browser.wait("the plan", "return location.pathname === '/plan' && location.search === ''")?;
    browser.wait("a way to sign out", "return document.querySelector('[data-testid=sign-out]')")?;
    // Another page of the same session has live data. It ends when this one signs out.
    let other = browser.run("return location.origin")?;
    browser.fresh_tab()?;
    browser.open(other.as_str().unwrap_or_default())?;
    says(&browser, "connection", "Live")?;
    browser.run("return fetch('/api/v1/sign-out', { method: 'POST' })")?;
    says(&browser, "stale-notice", "not signed in any more")?;
    browser.reload()?;
    ensure!(text(&browser)?.contains("You are not signed in"), "{}", text(&browser)?);

    browser.open(&format!("{}/?token={TOKEN}", server.address))?;
    browser.wait("a way to sign out", "return document.querySelector('[data-testid=sign-out]')")?;
    browser.click("[data-testid=sign-out]")?;
    browser.wait("the page of strangers", "return /You are not signed in/.test(document.body.innerText)")?;
    browser.reload()?;
    ensure!(text(&browser)?.contains("You are not signed in"), "{}", text(&browser)?);

    // Without a server, the longest word for the connection still fits on a phone, beside a scroll bar.
    browser.open(&format!("{}/?token={TOKEN}", server.address))?;
    browser.wait("a way to sign out", "return document.querySelector('[data-testid=sign-out]')")?;
    browser.viewport(385, 900)?;
    server.kill()?;
    says(&browser, "connection", "Reconnecting")?;
    ensure!(overflow(&browser)?.is_none(), "too wide: {:?}", overflow(&browser)?);
    Ok(())
}

#[test]
fn a_page_that_is_open_when_the_server_restarts_says_that_it_must_sign_in() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start_with_token(data.path(), TOKEN)?;
    let listen = server.listen().to_owned();
    browser.open(&format!("{}/?token={TOKEN}", server.address))?;
    says(&browser, "empty", "No runs yet")?;
    server.kill()?;
    let mut command = Server::command(data.path(), &listen);
    command.env("PACELINE_TOKEN", TOKEN);
    let server = Server::spawn(command)?;
    says(&browser, "stale-notice", "not signed in any more")?;
    browser.open(&format!("{}/?token={TOKEN}", server.address))?;
    says(&browser, "empty", "No runs yet")?;
    browser.wait("no notice", "return document.querySelector('[data-testid=stale-notice]') === null")?;
    Ok(())
}

#[test]
fn without_a_token_there_is_nothing_to_sign_out_of() -> anyhow::Result<()> {
    let Some(browser) = Browser::start()? else { return Ok(()) };
    let data = tempfile::tempdir()?;
    let server = Server::start(data.path())?;
    browser.open(&server.address)?;
    says(&browser, "empty", "No runs yet")?;
    says(&browser, "connection", "Live")?;
    ensure!(browser.run("return document.querySelector('[data-testid=sign-out]')")?.is_null(), "a sign-out");
    Ok(())
}
